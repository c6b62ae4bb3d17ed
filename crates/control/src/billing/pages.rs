//! The hosted pages: checkout and billing set-up (CP-4d). They are plain forms for a signed-in
//! user. A member who may create projects in the workspace may also pay for them.

use std::sync::Arc;

use api::control::plans::{Price, UnavailableReason, UnknownWord};
use api::control::projects::{CreateProject, Placement};
use askama::Template;
use axum::Router;
use axum::extract::{OriginalUri, State};
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use store::Conn;
use store::workspaces::{self, Membership};
use types::id::WorkspaceId;
use types::permission::Permission;
use types::problem::Problem;

use crate::app::App;
use crate::billing::plans::explain;
use crate::caller::Principal;
use crate::caller::access;
use crate::http_api::extract::Query;
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::pages::form::Form;
use crate::pages::layout::{MessagePage, PageRefusal, page, page_with, see_other};
use crate::pages::signed_in;
use crate::people::session::Visitor;
use crate::projects::create::{ConfirmedBy, CreateRequest, create_or_find};
use crate::runtime::random;

/// The routes of this module.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/billing/checkout", get(checkout).post(confirm))
        .route("/billing/setup", get(setup).post(set_up))
}

#[derive(Template)]
#[template(path = "checkout.html")]
struct CheckoutPage<'a> {
    title: &'a str,
    note: Option<&'a str>,
    workspace_id: &'a str,
    workspace: &'a str,
    plan: &'a str,
    now: Option<String>,
    monthly: Option<String>,
    impact: &'a str,
    order: &'a CreateProject,
}

#[derive(Template)]
#[template(path = "billing_setup.html")]
struct SetupPage<'a> {
    workspace_id: &'a str,
    workspace: &'a str,
}

/// Shows the project to create and its cost.
async fn checkout(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    OriginalUri(uri): OriginalUri,
    mut query: Query,
) -> Result<Response, PageRefusal> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let who = signed_in(visitor, path)?.principal();
    let mut field = |name: &str| query.text(name).unwrap_or_default();
    let workspace = field("workspaceId");
    let order = read_order(&mut field)?;
    show(&app, &who, &workspace, order, StatusCode::OK, None).await
}

/// Creates the project, and the subscription that pays for it.
async fn confirm(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?.principal();
    let mut field = |name: &str| form.text(name);
    let workspace = field("workspaceId");
    let order = CreateProject {
        creation_fingerprint: field("creationFingerprint"),
        idempotency_key: field("idempotencyKey"),
        ..read_order(&mut field)?
    };
    let checked = CreateRequest::check(order.clone())?;
    match create_or_find(&app, &who, &workspace, &checked, ConfirmedBy::Checkout).await {
        Ok(project) => Ok(page(&MessagePage {
            title: "Your project is ready",
            text: &format!(
                "{} is ready; its endpoint is {}.",
                project.name, project.endpoint
            ),
            link: Some(("/account", "Go to your account")),
        })),
        // CP-4b: the creation would differ from the page that was shown. The current offer is shown
        // instead.
        Err(refusal) if refusal.problem().code == Problem::creation_preview_stale().code => {
            let note = "The offer has changed. This is the current one.";
            show(
                &app,
                &who,
                &workspace,
                order,
                StatusCode::CONFLICT,
                Some(note),
            )
            .await
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// The page of the current offer, with a fresh idempotency key. Each page can confirm one creation.
async fn show(
    app: &App,
    who: &Principal,
    workspace: &str,
    mut order: CreateProject,
    status: StatusCode,
    note: Option<&str>,
) -> Result<Response, PageRefusal> {
    let mut conn = app.store.read().await?;
    let workspace = access::workspace(&mut conn, who, workspace, PERMISSION).await?;
    let snapshot = app
        .plan_service
        .snapshot(&mut conn, workspace.id, app.now())
        .await?;
    drop(conn);
    let offer = app.plan_service.offer(&snapshot, order.plan);
    if let Some(reason) = offer.unavailable {
        return Err(Problem::conflict().with_detail(explain(reason)).into());
    }
    if let super::Decision::Setup { .. } = offer.decision {
        let path = format!("/billing/setup?workspaceId={}", workspace.id);
        return Err(PageRefusal::SeeOther(path));
    }
    let id = workspace.id.as_str();
    order.creation_fingerprint = offer.fingerprint(id, app.plan_service.key()).to_string();
    order.idempotency_key = format!("{:032x}", u128::from_be_bytes(random::bytes()?));
    // Errors that would prevent the confirmation are shown immediately.
    CreateRequest::check(order.clone())?;
    let impact = offer.impact();
    let checkout = CheckoutPage {
        title: &impact.label,
        note,
        workspace_id: id,
        workspace: &workspace.name,
        plan: &offer.terms.name,
        now: impact.price.map(money),
        monthly: impact.recurring.map(|recurring| {
            money(Price {
                amount_minor: recurring.amount_minor,
                currency: recurring.currency,
            })
        }),
        impact: &impact.description,
        order: &order,
    };
    Ok(page_with(status, &checkout))
}

/// Explains the billing set-up.
async fn setup(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    OriginalUri(uri): OriginalUri,
    mut query: Query,
) -> Result<Response, PageRefusal> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let who = signed_in(visitor, path)?.principal();
    let id = query.text("workspaceId").unwrap_or_default();
    let mut conn = app.store.read().await?;
    let workspace: Membership = access::workspace(&mut conn, &who, &id, PERMISSION).await?;
    require_sold_here(&app, &mut conn, workspace.id).await?;
    Ok(page(&SetupPage {
        workspace_id: workspace.id.as_str(),
        workspace: &workspace.name,
    }))
}

/// Starts the subscription, or makes it active again.
async fn set_up(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?.principal();
    let id = form.text("workspaceId");
    let mut tx = app.store.begin().await?;
    let workspace = access::workspace(&mut tx, &who, &id, PERMISSION).await?;
    workspaces::lock(&mut tx, workspace.id).await?;
    require_sold_here(&app, &mut tx, workspace.id).await?;
    let currency = app.plan_service.catalogue().currency;
    let billing = app.plan_service.billing();
    billing
        .subscribe(&mut tx, workspace.id, currency.as_str(), app.now())
        .await?;
    tx.commit().await?;
    Ok(see_other("/account"))
}

/// Refuses to start a subscription if the operator has disabled sales on these pages. An existing
/// subscription can still be repaired.
async fn require_sold_here(
    app: &App,
    conn: &mut Conn,
    workspace: WorkspaceId,
) -> HandlerResult<()> {
    let account = app.plan_service.billing().account(conn, workspace).await?;
    if account.subscription.is_some() || app.plan_service.catalogue().hosted_checkout {
        return Ok(());
    }
    let reason = explain(UnavailableReason::CheckoutDisabled);
    Err(Problem::conflict().with_detail(reason).into())
}

/// The project to create, without the confirmation fields.
fn read_order(field: &mut impl FnMut(&str) -> String) -> HandlerResult<CreateProject> {
    let unknown = |name: &'static str| {
        move |UnknownWord| -> Refusal {
            Problem::invalid_request("This link is incomplete.")
                .with_field(name)
                .into()
        }
    };
    Ok(CreateProject {
        name: field("name"),
        plan: field("plan").parse().map_err(unknown("plan"))?,
        provider: field("provider").parse().map_err(unknown("provider"))?,
        region: field("region"),
        routing: Placement::default(),
        creation_fingerprint: String::new(),
        idempotency_key: String::new(),
    })
}

/// An amount for users: `19.00 EUR`.
fn money(price: Price) -> String {
    let code = price.currency.as_str();
    // ISO 4217: most currencies have hundredths.
    let digits = if NO_MINOR_UNIT.contains(&code) {
        return format!("{} {code}", price.amount_minor);
    } else if THOUSANDTHS.contains(&code) {
        3
    } else {
        2
    };
    let unit = 10_i64.pow(digits);
    let width = digits as usize;
    let (whole, rest) = (price.amount_minor / unit, price.amount_minor % unit);
    format!("{whole}.{rest:0width$} {code}")
}

const PERMISSION: Permission = Permission::AccountProjectsReadWrite;
const NO_MINOR_UNIT: [&str; 8] = ["CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND", "XAF"];
const THOUSANDTHS: [&str; 5] = ["BHD", "JOD", "KWD", "OMR", "TND"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_the_digits_of_their_currency() {
        for (amount_minor, currency, text) in [
            (1900, "EUR", "19.00 EUR"),
            (5, "USD", "0.05 USD"),
            (0, "EUR", "0.00 EUR"),
            (1900, "JPY", "1900 JPY"),
            (1900, "KWD", "1.900 KWD"),
        ] {
            let currency = currency.parse().unwrap();
            let price = Price {
                amount_minor,
                currency,
            };
            assert_eq!(money(price), text);
        }
    }
}
