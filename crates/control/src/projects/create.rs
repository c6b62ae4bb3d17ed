//! `POST …/projects/tunnels`: creates a project with a confirmed preview (CP-4).
//!
//! One transaction contains the idempotency key, the capacity in the region, the project, the
//! change of the subscription and the audit entry. A crash stores all of them or none, and
//! repeating the request finds out which.

use std::sync::Arc;

use api::control::plans::Plan;
use api::control::projects::{CreateProject, Project};
use aws_lc_rs::digest;
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::json;
use store::idempotency::{self, Claim};
use store::workspaces::Membership;
use store::{Conflict, SecretHash, Tx, capacity, projects};
use types::form;
use types::id::{ProjectId, unix_millis};
use types::permission::Permission;
use types::problem::Problem;

use super::endpoint::ProjectEndpoint;
use super::name::{IdempotencyKey, ProjectName};
use super::{audit_entry, view};
use crate::app::App;
use crate::billing::plans::explain;
use crate::billing::{Decision, Item};
use crate::caller::access;
use crate::caller::{Caller, Principal, ProjectsWrite};
use crate::http_api::extract::{Body, Segment};
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::runtime::random;

pub(super) async fn create(
    caller: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Segment(workspace): Segment,
    Body(body): Body<CreateProject>,
) -> HandlerResult<(StatusCode, Json<Project>)> {
    let order = CreateRequest::check(body)?;
    let project = create_or_find(
        &app,
        &caller.principal,
        &workspace,
        &order,
        ConfirmedBy::Api,
    )
    .await?;
    Ok((StatusCode::CREATED, Json(view(&app, &project)?)))
}

/// The step that confirms a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfirmedBy {
    /// A call of the creation route.
    Api,
    /// A user on the checkout page, which pays for it as well.
    Checkout,
}

/// A creation with validated fields.
#[derive(Clone, Debug)]
pub(crate) struct CreateRequest {
    name: ProjectName,
    key: IdempotencyKey,
    body: CreateProject,
    hash: SecretHash,
}

impl CreateRequest {
    /// Validates the fields.
    pub(crate) fn check(body: CreateProject) -> HandlerResult<Self> {
        let name = ProjectName::parse(body.name.clone());
        let name = name.map_err(|error| field("name", &error.to_string()))?;
        let key = IdempotencyKey::parse(body.idempotency_key.clone());
        let key = key.map_err(|error| field("idempotencyKey", &error.to_string()))?;
        if !(1..=MAX_FINGERPRINT_BYTES).contains(&body.creation_fingerprint.len()) {
            return Err(field("creationFingerprint", "expected 1 to 128 characters").into());
        }
        if body.region.is_empty() {
            return Err(field("region", "expected the name of a region").into());
        }
        Ok(Self {
            name,
            key,
            hash: hash(&body)?,
            body,
        })
    }
}

/// Creates the project, or finds the one that the same request has created before (CP-4a).
pub(crate) async fn create_or_find(
    app: &App,
    who: &Principal,
    workspace: &str,
    request: &CreateRequest,
    confirmed_by: ConfirmedBy,
) -> HandlerResult<projects::Project> {
    for _ in 0..ENDPOINT_ATTEMPTS {
        if let Some(project) = attempt(app, who, workspace, request, confirmed_by).await? {
            return Ok(project);
        }
    }
    tracing::error!("no free project endpoint was found");
    Err(Problem::unavailable().into())
}

/// Runs one transaction. `None` if the random endpoint was taken.
async fn attempt(
    app: &App,
    who: &Principal,
    workspace: &str,
    request: &CreateRequest,
    confirmed_by: ConfirmedBy,
) -> HandlerResult<Option<projects::Project>> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let found = access::workspace(&mut tx, who, workspace, PERMISSION).await?;
    store::workspaces::lock(&mut tx, found.id).await?;
    // Checked again under the lock.
    let workspace = access::workspace(&mut tx, who, workspace, PERMISSION).await?;

    let id = ProjectId::new(unix_millis(now), random::bytes()?);
    let key = request.key.as_str();
    match idempotency::claim(&mut tx, workspace.id, key, request.hash, id, now).await? {
        Claim::Claimed => {}
        Claim::AlreadyUsed(key) => {
            return find_created(&mut tx, who, &workspace, request, &key)
                .await
                .map(Some);
        }
    }
    check_quota(app, &mut tx, &workspace).await?;
    let body = &request.body;
    let snapshot = app
        .plan_service
        .snapshot(&mut tx, workspace.id, now)
        .await?;
    let offer = app.plan_service.offer(&snapshot, body.plan);
    let fingerprint = offer.fingerprint(workspace.id.as_str(), app.plan_service.key());
    if !fingerprint.is(&body.creation_fingerprint) {
        return Err(Problem::creation_preview_stale().into());
    }
    if let Some(reason) = offer.unavailable {
        let problem = Problem::conflict().with_detail(explain(reason));
        return Err(problem.with_field("plan").into());
    }
    let Some(region) = offer.region(body.provider, &body.region) else {
        return Err(not_offered(app, body).into());
    };
    let region = region.region.clone();
    let consent = (offer.decision, confirmed_by, now);
    let due = payment(app, &mut tx, &workspace, body, consent).await?;
    let (provider, plan) = (body.provider.as_str(), body.plan.as_str());
    if !capacity::take(&mut tx, provider, &region, plan).await? {
        return Err(Problem::creation_preview_stale().into());
    }
    let new = projects::NewProject {
        id,
        workspace_id: workspace.id,
        endpoint: ProjectEndpoint::new(random::bytes()?).to_string(),
        name: request.name.to_string(),
        plan: plan.to_owned(),
        provider: provider.to_owned(),
        region: Some(region),
        routing: "regional".to_owned(),
        deployment: "shared".to_owned(),
        created_by: who.user.id,
        now,
    };
    match projects::insert(&mut tx, &new).await {
        Err(error) if error.conflict() == Some(Conflict::EndpointTaken) => return Ok(None),
        other => other?,
    }
    if let Some((amount_now, monthly)) = due {
        let item = Item {
            workspace: workspace.id,
            project: id,
            plan,
            amount_now,
            monthly,
            paid_until: None,
        };
        app.plan_service.billing().add(&mut tx, &item, now).await?;
    }
    let details = json!({"plan": plan, "provider": provider, "region": new.region});
    let (workspace, action) = (workspace.id, "project.created");
    audit_entry::record_project_action(&mut tx, who, workspace, id, action, details, now).await?;
    let project = projects::by_id(&mut tx, id).await?;
    tx.commit().await?;
    project.map(Some).ok_or_else(|| Problem::internal().into())
}

async fn check_quota(app: &App, tx: &mut Tx, workspace: &Membership) -> HandlerResult<()> {
    let limit = app.config.limits.projects_per_workspace;
    if projects::count_of_workspace(tx, workspace.id).await? >= u64::from(limit) {
        let detail = format!("The workspace already has {limit} projects.");
        return Err(Problem::conflict().with_detail(detail).into());
    }
    Ok(())
}

/// The amounts that are due now and monthly, according to the decision on the creation. `None` if
/// it is free.
async fn payment(
    app: &App,
    tx: &mut Tx,
    workspace: &Membership,
    body: &CreateProject,
    (decision, step, now): (Decision, ConfirmedBy, Timestamp),
) -> HandlerResult<Option<(i64, i64)>> {
    match decision {
        Decision::Free => Ok(None),
        Decision::Update {
            now: rest, monthly, ..
        } => Ok(Some((rest, monthly))),
        Decision::Checkout { monthly } if step == ConfirmedBy::Checkout => {
            let currency = app.plan_service.catalogue().currency;
            let billing = app.plan_service.billing();
            billing
                .subscribe(tx, workspace.id, currency.as_str(), now)
                .await?;
            Ok(Some((monthly, monthly)))
        }
        // CP-4d: a creation that needs a hosted page cannot be confirmed here.
        Decision::Checkout { .. } => {
            let url = checkout_url(app, workspace.id.as_str(), body);
            Err(Problem::payment_required(url).into())
        }
        Decision::Setup { .. } => {
            let url = setup_url(app, workspace.id.as_str());
            Err(Problem::payment_required(url).into())
        }
    }
}

/// CP-4a: repeating a request gives the same response. A different request with the same key is
/// refused.
async fn find_created(
    tx: &mut Tx,
    who: &Principal,
    workspace: &Membership,
    order: &CreateRequest,
    key: &idempotency::Key,
) -> HandlerResult<projects::Project> {
    if key.body_hash != order.hash {
        return Err(Problem::idempotency_key_reused()
            .with_field("idempotencyKey")
            .into());
    }
    let found = projects::of_user_by_id(tx, who.user.id, key.project_id).await?;
    match found {
        Some(found) if found.project.workspace_id == workspace.id => Ok(found.project),
        // The project is deleted. It is not created again, and there is no project to return.
        _ => Err(Problem::conflict()
            .with_detail("The project of this idempotency key was deleted or transferred.")
            .with_field("idempotencyKey")
            .into()),
    }
}

/// Address of the page for a first payment. It contains the chosen options, so that the user need
/// not choose again.
pub(crate) fn checkout_url(app: &App, workspace: &str, body: &CreateProject) -> String {
    let query = form::encode([
        ("workspaceId", workspace),
        ("plan", body.plan.as_str()),
        ("provider", body.provider.as_str()),
        ("region", &body.region),
        ("name", &body.name),
    ]);
    app.config.url(&format!("/billing/checkout?{query}"))
}

/// Address of the page that sets up billing.
pub(crate) fn setup_url(app: &App, workspace: &str) -> String {
    let query = form::encode([("workspaceId", workspace)]);
    app.config.url(&format!("/billing/setup?{query}"))
}

/// The error for a region that is not offered: unknown (400), or full since the preview (409).
fn not_offered(app: &App, body: &CreateProject) -> Problem {
    let sells = |plan: Plan| {
        let region = app
            .plan_service
            .catalogue()
            .region(body.provider, &body.region);
        region.is_some_and(|region| region.plans.contains(&plan))
    };
    if sells(body.plan) {
        Problem::conflict()
            .with_detail("The region has no room for this plan.")
            .with_field("region")
    } else {
        field("region", "not a region of this provider with this plan")
    }
}

fn field(name: &str, message: &str) -> Problem {
    Problem::invalid_request(format!("{name}: {message}")).with_field(name)
}

/// Digest of the request, independent of white space and the order of members.
fn hash(body: &CreateProject) -> HandlerResult<SecretHash> {
    let text = serde_json::to_vec(body).map_err(|_| Refusal::from(Problem::internal()))?;
    let hash = digest::digest(&digest::SHA256, &text);
    let hash = hash.as_ref().try_into().map_err(|_| Problem::internal())?;
    Ok(SecretHash(hash))
}

const PERMISSION: Permission = Permission::AccountProjectsReadWrite;
/// A fingerprint has 43 characters. A much longer text cannot be one.
const MAX_FINGERPRINT_BYTES: usize = 128;
/// At most a few million of the four billion endpoints are ever used. The chance that a random one
/// is taken stays below one in a thousand, and four times in a row below one in a million million.
const ENDPOINT_ATTEMPTS: usize = 4;
