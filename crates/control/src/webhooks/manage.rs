//! API for creating, changing and deleting webhooks, and for replacing their secrets.

use std::sync::Arc;

use api::control::webhooks::{
    CreateWebhook, MAX_OVERLAP_SECONDS, MAX_URL_BYTES, OVERLAP_SECONDS, RotateWebhookSecret,
    UpdateWebhook, Webhook, WebhookConfig, WebhookDestinationType, WebhookEventType, WebhookStatus,
    WebhookWithSecret,
};
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use store::projects::Project;
use store::webhooks::{self as stored, Status};
use store::{Tx, deliveries};
use types::id::{WebhookId, unix_millis};
use types::permission::Permission;
use types::problem::Problem;

use super::read::find_webhook;
use super::{secret, view};
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, Principal, WebhooksWrite};
use crate::http_api::extract::{Body, OptionalBody, Path, Segment};
use crate::http_api::problem::{HandlerResult, bad};
use crate::http_api::user_text::{validate_description, validate_name};
use crate::projects::audit_entry;
use crate::runtime::random;

pub(super) async fn create(
    Caller { principal: who, .. }: Caller<WebhooksWrite>,
    State(app): State<Arc<App>>,
    Segment(project_id): Segment,
    Body(body): Body<CreateWebhook>,
) -> HandlerResult<(StatusCode, Json<WebhookWithSecret>)> {
    if body.destination_type != WebhookDestinationType::WebhookEndpoint {
        return Err(Problem::feature_unavailable("destinationType").into());
    }
    let name = validate_name(&body.name)?;
    let description = body
        .description
        .as_deref()
        .map(validate_description)
        .transpose()?;
    let events = check_events(&body.events)?;
    let url = check_url(&app, &body.config)?;
    let now = app.now();
    let id = WebhookId::new(unix_millis(now), random::bytes()?);
    let signing = secret::draw()?;
    let sealed_secret = secret::sealed(&app, id, &signing)?;
    let mut tx = app.store.begin().await?;
    let project = locked_project(&mut tx, &who, &project_id).await?;
    require_plan(&app, &project)?;
    if stored::count(&mut tx, project.id).await? >= MAX_WEBHOOKS {
        let detail = format!("The project already has {MAX_WEBHOOKS} webhooks.");
        return Err(Problem::conflict().with_detail(detail).into());
    }
    let webhook = stored::Webhook {
        id,
        project_id: project.id,
        name,
        description,
        destination_type: "webhook_endpoint".to_owned(),
        status: status(body.status),
        events,
        url,
        sealed_secret,
        previous_sealed_secret: None,
        previous_secret_expires_at: None,
        secret_rotated_at: None,
        failing_since: None,
        created_by: who.user.id,
        created_at: now,
        updated_at: now,
    };
    stored::insert(&mut tx, &webhook).await?;
    record(&mut tx, &who, &project, "webhook.created", &webhook, now).await?;
    tx.commit().await?;
    let shown = WebhookWithSecret {
        webhook: view::webhook(&webhook, &project, now),
        signing_secret: signing.expose().to_owned(),
    };
    Ok((StatusCode::CREATED, Json(shown)))
}

pub(super) async fn update(
    Caller { principal: who, .. }: Caller<WebhooksWrite>,
    State(app): State<Arc<App>>,
    Path((project_id, webhook_id)): Path<(String, String)>,
    Body(body): Body<UpdateWebhook>,
) -> HandlerResult<Json<Webhook>> {
    let new_name = body.name.as_deref().map(validate_name).transpose()?;
    let new_description = body
        .description
        .map(|given| given.as_deref().map(validate_description).transpose())
        .transpose()?;
    let new_events = body.events.as_deref().map(check_events).transpose()?;
    let new_url = body
        .config
        .map(|config| check_url(&app, &config))
        .transpose()?;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let (project, old) = locked_webhook(&mut tx, &who, &project_id, &webhook_id).await?;
    let mut new = stored::Webhook {
        name: new_name.unwrap_or_else(|| old.name.clone()),
        description: new_description.unwrap_or_else(|| old.description.clone()),
        status: body.status.map_or(old.status, status),
        events: new_events.unwrap_or_else(|| old.events.clone()),
        url: new_url.unwrap_or_else(|| old.url.clone()),
        ..old.clone()
    };
    let is_enabled_again = (old.status, new.status) == (Status::Disabled, Status::Enabled);
    if is_enabled_again {
        require_plan(&app, &project)?;
    }
    // Earlier failures, or those of another address, do not predict the next attempt.
    if is_enabled_again || new.url != old.url {
        new.failing_since = None;
    }
    if new == old {
        return Ok(Json(view::webhook(&old, &project, now)));
    }
    new.updated_at = now;
    stored::update(&mut tx, &new).await?;
    if new.status == Status::Disabled {
        deliveries::cancel(&mut tx, new.id, now).await?;
    }
    record(&mut tx, &who, &project, "webhook.updated", &new, now).await?;
    tx.commit().await?;
    Ok(Json(view::webhook(&new, &project, now)))
}

pub(super) async fn delete(
    Caller { principal: who, .. }: Caller<WebhooksWrite>,
    State(app): State<Arc<App>>,
    Path((project_id, webhook_id)): Path<(String, String)>,
) -> HandlerResult<StatusCode> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let (project, webhook) = locked_webhook(&mut tx, &who, &project_id, &webhook_id).await?;
    stored::delete(&mut tx, project.id, webhook.id, now).await?;
    deliveries::cancel(&mut tx, webhook.id, now).await?;
    record(&mut tx, &who, &project, "webhook.deleted", &webhook, now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Replaces the secret. The new one signs immediately, together with the old one until the overlap
/// ends.
pub(super) async fn rotate(
    Caller { principal: who, .. }: Caller<WebhooksWrite>,
    State(app): State<Arc<App>>,
    Path((project_id, webhook_id)): Path<(String, String)>,
    OptionalBody(body): OptionalBody<RotateWebhookSecret>,
) -> HandlerResult<Json<WebhookWithSecret>> {
    let overlap = body.unwrap_or_default().overlap_seconds;
    let overlap = overlap.unwrap_or(OVERLAP_SECONDS);
    if overlap > MAX_OVERLAP_SECONDS {
        let detail = format!("overlapSeconds is not an integer from 0 to {MAX_OVERLAP_SECONDS}");
        return Err(bad("overlapSeconds", detail));
    }
    let now = app.now();
    let overlap = SignedDuration::from_secs(overlap.into());
    let ends_at = now.saturating_add(overlap).unwrap_or(Timestamp::MAX);
    let signing = secret::draw()?;
    let mut tx = app.store.begin().await?;
    let (project, webhook) = locked_webhook(&mut tx, &who, &project_id, &webhook_id).await?;
    let sealed = secret::sealed(&app, webhook.id, &signing)?;
    stored::rotate_secret(&mut tx, project.id, webhook.id, &sealed, ends_at, now).await?;
    let action = "webhook.secret_rotated";
    record(&mut tx, &who, &project, action, &webhook, now).await?;
    let webhook = find_webhook(&mut tx, &project, &webhook_id).await?;
    tx.commit().await?;
    Ok(Json(WebhookWithSecret {
        webhook: view::webhook(&webhook, &project, now),
        signing_secret: signing.expose().to_owned(),
    }))
}

/// The project, if the caller may change its webhooks. Its lock serialises concurrent changes.
async fn locked_project(tx: &mut Tx, who: &Principal, id: &str) -> HandlerResult<Project> {
    access::locked_project(tx, who, id, Permission::NetworkWebhooksReadWrite).await
}

/// Like [`locked_project`], with a locked webhook of the project, so that no attempt changes it
/// meanwhile.
pub(super) async fn locked_webhook(
    tx: &mut Tx,
    who: &Principal,
    project_id: &str,
    id: &str,
) -> HandlerResult<(Project, stored::Webhook)> {
    let project = locked_project(tx, who, project_id).await?;
    let found = find_webhook(tx, &project, id).await?;
    stored::lock(tx, found.id).await?;
    // Read again, now that the row is locked.
    let webhook = find_webhook(tx, &project, id).await?;
    Ok((project, webhook))
}

/// Only some plans include webhooks.
fn require_plan(app: &App, project: &Project) -> HandlerResult<()> {
    access::require_usable(project)?;
    let terms = app.plan_service.terms_of(project)?;
    if terms.webhooks {
        return Ok(());
    }
    let detail = format!("The plan {} has no webhooks.", terms.name);
    Err(access::not_in_plan(detail))
}

/// The address may contain a secret, so the audit log omits it.
async fn record(
    tx: &mut Tx,
    who: &Principal,
    project: &Project,
    action: &str,
    webhook: &stored::Webhook,
    now: Timestamp,
) -> HandlerResult<()> {
    let details = json!({"webhook": webhook.id, "name": webhook.name});
    let workspace = project.workspace_id;
    audit_entry::record_project_action(tx, who, workspace, project.id, action, details, now).await
}

fn status(given: WebhookStatus) -> Status {
    match given {
        WebhookStatus::Enabled => Status::Enabled,
        WebhookStatus::Disabled => Status::Disabled,
    }
}

fn check_events(given: &[WebhookEventType]) -> HandlerResult<Vec<String>> {
    let mut words: Vec<_> = given.iter().map(|kind| kind.as_str().to_owned()).collect();
    words.sort_unstable();
    words.dedup();
    if words.is_empty() {
        return Err(bad("events", "expected at least one type of event"));
    }
    Ok(words)
}

fn check_url(app: &App, config: &WebhookConfig) -> HandlerResult<String> {
    let text = config.url.trim();
    if text.len() > MAX_URL_BYTES {
        let detail = format!("an address must have at most {MAX_URL_BYTES} bytes");
        return Err(bad("config.url", detail));
    }
    let parsed = app.webhooks.sender.targets.parse(text);
    parsed.map_err(|detail| bad("config.url", detail))?;
    Ok(text.to_owned())
}

/// Maximum number of webhooks of one project. Each event may be sent to all of them.
const MAX_WEBHOOKS: u64 = 20;
