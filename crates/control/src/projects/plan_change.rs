//! `GET` and `POST …/plan-change`: changes the plan of a project with a confirmed preview.
//!
//! The preview and the change use the same [`assess`]. The caller confirms the fingerprint of the
//! preview, which covers the price, the limits and the stored use (as CP-4b for creations).

mod limits;

use std::sync::Arc;

use api::control::plan_change::{ChangePlan, LimitChange, LimitEffect, PlanChange};
use api::control::plans::{
    BillingImpact, BillingImpactKind, Interval, Plan, Price, RecurringPrice, UnavailableReason,
};
use api::control::projects::Project;
use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::json;
use store::{Conn, Tx, capacity, projects};
use types::permission::Permission;
use types::problem::Problem;

use self::limits::differences;
use super::create::setup_url;
use super::{audit_entry, view};
use crate::app::App;
use crate::billing::plans::{Fingerprint, Offer, explain};
use crate::billing::{Decision, Item};
use crate::caller::access;
use crate::caller::{Caller, PlanRead, ProjectsWrite};
use crate::http_api::extract::{Body, Query, Segment};
use crate::http_api::problem::HandlerResult;

/// Shows the effects of another plan.
pub(super) async fn preview(
    caller: Caller<PlanRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    mut query: Query,
) -> HandlerResult<Json<PlanChange>> {
    let wanted: Option<Plan> = query.parsed("plan", PLANS)?;
    query.finish()?;
    let permission = Permission::AccountPlanReadOnly;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &id, permission).await?;
    let project = found.project;
    let Some(to) = wanted else {
        let missing = format!("plan: expected {PLANS}");
        return Err(Problem::invalid_request(missing).with_field("plan").into());
    };
    access::require_usable(&project)?;
    if current(&project)? == to {
        let same = "The project already has this plan; choose another one.";
        return Err(Problem::conflict()
            .with_detail(same)
            .with_field("plan")
            .into());
    }
    let assessed = assess(&app, &mut conn, &project, to, app.now()).await?;
    Ok(Json(PlanChange {
        change_fingerprint: assessed.fingerprint.to_string(),
        ..assessed.shown
    }))
}

/// Changes the plan. One transaction contains the capacity, the project, the subscription and the
/// audit entry. A repeated request finds the new plan and changes nothing.
pub(super) async fn change(
    caller: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    Body(body): Body<ChangePlan>,
) -> HandlerResult<Json<Project>> {
    let now = app.now();
    let who = &caller.principal;
    let mut tx = app.store.begin().await?;
    let permission = Permission::AccountProjectsReadWrite;
    let project = access::locked_project(&mut tx, who, &id, permission).await?;
    access::require_usable(&project)?;
    let (from, to) = (current(&project)?, body.plan);
    if from == to {
        return view(&app, &project).map(Json);
    }
    let assessed = assess(&app, &mut tx, &project, to, now).await?;
    require_possible(&assessed.shown)?;
    if !assessed.fingerprint.is(&body.change_fingerprint) {
        return Err(Problem::creation_preview_stale()
            .with_field("changeFingerprint")
            .into());
    }
    if let Some(url) = assessed.shown.setup_url {
        // CP-4d: a hosted page is required first.
        return Err(Problem::payment_required(url).into());
    }
    move_capacity(&mut tx, &project, from, to).await?;
    let (workspace, billing) = (project.workspace_id, app.plan_service.billing());
    let paid_until = billing.remove(&mut tx, workspace, project.id, now).await?;
    if let Some((amount_now, monthly)) = assessed.due {
        let later = |paid: &Date| assessed.renewal.is_none_or(|end| *paid > end);
        let item = Item {
            workspace,
            project: project.id,
            plan: to.as_str(),
            amount_now,
            monthly,
            // The running period is in `amount_now`. Only days after it are paid already.
            paid_until: paid_until.filter(later),
        };
        billing.add(&mut tx, &item, now).await?;
    }
    if !projects::set_plan(&mut tx, project.id, from.as_str(), to.as_str(), now).await? {
        return Err(Problem::not_found().into());
    }
    let details = json!({"from": from.as_str(), "to": to.as_str()});
    let action = "project.plan_changed";
    audit_entry::record_project_action(&mut tx, who, workspace, project.id, action, details, now)
        .await?;
    tx.commit().await?;
    let changed = projects::Project {
        plan: to.as_str().to_owned(),
        ..project
    };
    view(&app, &changed).map(Json)
}

/// The effects of a change, for the response and for the transaction.
struct Assessment {
    /// The response, without its fingerprint.
    shown: PlanChange,
    fingerprint: Fingerprint,
    /// The amounts that are due now and monthly; `None` if the new plan is free.
    due: Option<(i64, i64)>,
    /// The first day of the next period of the subscription.
    renewal: Option<Date>,
}

async fn assess(
    app: &App,
    conn: &mut Conn,
    project: &projects::Project,
    to: Plan,
    now: Timestamp,
) -> HandlerResult<Assessment> {
    let (service, workspace) = (&app.plan_service, project.workspace_id);
    let snapshot = service.snapshot(conn, workspace, now).await?;
    let billing = service.billing();
    let paid = billing.monthly(conn, workspace, project.id).await?;
    let used = limits::used(conn, project.id).await?;
    let offer = service.offer(&snapshot, to);
    let due = match &offer.decision {
        Decision::Free => None,
        Decision::Checkout { monthly } => Some((*monthly, *monthly)),
        Decision::Update {
            now: full, monthly, ..
        }
        | Decision::Setup { now: full, monthly } => {
            // The rest of the running period is paid for at the old price.
            let rest = snapshot.rest_of_period(paid.unwrap_or_default());
            Some((full.saturating_sub(rest).max(0), *monthly))
        }
    };
    let needs_page = matches!(
        offer.decision,
        Decision::Checkout { .. } | Decision::Setup { .. }
    );
    let unavailable = unavailable(&offer, project);
    let renewal = snapshot.renewal();
    let shown = PlanChange {
        project_id: project.id.to_string(),
        from: current(project)?,
        to,
        available: unavailable.is_none(),
        unavailable_reason_code: unavailable,
        unavailable_reason: unavailable.map(|reason| explain(reason).to_owned()),
        billing_impact: impact(app, &offer, due, paid),
        setup_url: needs_page.then(|| setup_url(app, workspace.as_str())),
        renews_on: renewal.filter(|_| due.is_some()).map(|day| day.to_string()),
        limits: differences(service.terms_of(project)?, offer.terms, used),
        change_fingerprint: String::new(),
    };
    let fingerprint = service.key().sign_change(
        workspace.as_str(),
        &shown,
        &offer.decision,
        snapshot.revision(),
    );
    Ok(Assessment {
        shown,
        fingerprint,
        due,
        renewal,
    })
}

/// Reason that the project cannot have the plan. Its region needs capacity for it.
fn unavailable(offer: &Offer<'_>, project: &projects::Project) -> Option<UnavailableReason> {
    let name = project.region.as_deref().unwrap_or_default();
    let provider = project.provider.parse().ok();
    let region = provider.and_then(|provider| offer.region(provider, name));
    let no_capacity = region.is_none().then_some(UnavailableReason::NoCapacity);
    offer.unavailable.or(no_capacity)
}

/// Refuses a plan that cannot be chosen, and one that the stored use exceeds.
fn require_possible(shown: &PlanChange) -> HandlerResult<()> {
    if let Some(reason) = shown.unavailable_reason_code {
        let problem = Problem::conflict().with_detail(explain(reason));
        return Err(problem.with_field("plan").into());
    }
    let blocks = |limit: &&LimitChange| limit.effect == LimitEffect::RemoveFirst;
    let Some(limit) = shown.limits.iter().find(blocks) else {
        return Ok(());
    };
    let detail = format!(
        "The project uses {} of {}, and the plan has {}: remove the excess first.",
        limit.used.unwrap_or_default(),
        limit.limit.as_str(),
        limit.to.unwrap_or_default()
    );
    let problem = Problem::new(409, "not_in_plan", "").with_detail(detail);
    Err(problem.with_field("plan").into())
}

/// Moves the capacity in the region. The rows are always changed in the order of the plans, so that
/// two changes in opposite directions do not deadlock.
async fn move_capacity(
    tx: &mut Tx,
    project: &projects::Project,
    from: Plan,
    to: Plan,
) -> HandlerResult<()> {
    let region = project.region.as_deref().unwrap_or_default();
    for plan in [from.min(to), from.max(to)] {
        let (provider, name) = (project.provider.as_str(), plan.as_str());
        if plan == from {
            capacity::release(tx, provider, region, name).await?;
        } else if !capacity::take(tx, provider, region, name).await? {
            let full = explain(UnavailableReason::NoCapacity);
            let problem = Problem::conflict().with_detail(full);
            return Err(problem.with_field("plan").into());
        }
    }
    Ok(())
}

/// Cost of the change. `paid` is the monthly amount until now.
fn impact(
    app: &App,
    offer: &Offer<'_>,
    due: Option<(i64, i64)>,
    paid: Option<i64>,
) -> BillingImpact {
    let catalogue = app.plan_service.catalogue();
    let currency = catalogue.currency;
    let (kind, label, description) = match (&offer.decision, due, paid) {
        (Decision::Free, _, None) => (
            BillingImpactKind::None,
            "No charge",
            "The project stays free of charge.",
        ),
        (Decision::Free, _, Some(_)) => (
            BillingImpactKind::None,
            "Removed from the subscription",
            "Later months are free. The rest of the current month is not refunded.",
        ),
        (Decision::Checkout { .. }, ..) => (
            BillingImpactKind::NewCharge,
            "New subscription",
            "Billing is set up first; the first month is charged with the change.",
        ),
        (_, Some((0, _)), Some(_)) => (
            BillingImpactKind::ProratedCharge,
            "Changed in the subscription",
            "Later months cost the new price. The rest of the current month is not refunded.",
        ),
        _ => (
            BillingImpactKind::ProratedCharge,
            "Changed in the subscription",
            "The difference for the rest of the current month is charged immediately, later months \
             in full.",
        ),
    };
    BillingImpact {
        kind,
        label: label.to_owned(),
        description: description.to_owned(),
        billing_enabled: catalogue.billing_enabled(),
        price: due.map(|(amount_minor, _)| Price {
            amount_minor,
            currency,
        }),
        compare_at_price: due.and(offer.terms.compare_at).map(|amount_minor| Price {
            amount_minor,
            currency,
        }),
        recurring: due.map(|(_, amount_minor)| RecurringPrice {
            amount_minor,
            currency,
            interval: Interval::Month,
        }),
        promotion: due.and_then(|_| offer.terms.promotion.clone()),
    }
}

fn current(project: &projects::Project) -> HandlerResult<Plan> {
    project.plan.parse().map_err(|_| {
        tracing::error!(project.id = %project.id, "the plan is not known");
        Problem::internal().into()
    })
}

const PLANS: &str = "`basic`, `pro` or `enterprise`";
