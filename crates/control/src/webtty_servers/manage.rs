//! API to register, change and remove servers.

use std::sync::Arc;

use api::control::webtty_servers::{
    CreateWebttyServer, CreatedWebttyServer, UpdateWebttyServer, WebttyServer, WebttyServerChange,
};
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde_json::json;
use store::webtty_servers as stored;
use store::{Conflict, Error};
use types::client::{Labels, check_labels};
use types::id::{WebttyServerId, unix_millis};
use types::problem::Problem;
use types::webtty::{AccessPolicy, EncryptionPolicy, RecordingPolicy, ServerStatus};

use super::read::{find_server, to_api};
use super::{locked, record};
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, WebttyServersWrite};
use crate::http_api::extract::{Body, Path, Segment};
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::http_api::user_text::{validate_description, validate_name};
use crate::runtime::random;

pub(super) async fn create(
    Caller { principal: who, .. }: Caller<WebttyServersWrite>,
    State(app): State<Arc<App>>,
    Segment(project_id): Segment,
    Body(body): Body<CreateWebttyServer>,
) -> HandlerResult<(StatusCode, Json<CreatedWebttyServer>)> {
    let encryption = body.encryption_policy.unwrap_or(EncryptionPolicy::Disabled);
    if encryption == EncryptionPolicy::WorkspaceManaged {
        let detail = "encryptionPolicy=workspace_managed is not available here";
        return Err(Problem::feature_unavailable("encryptionPolicy")
            .with_detail(detail)
            .into());
    }
    let recording = body.recording_policy.unwrap_or(RecordingPolicy::Recorded);
    let access = body.access_policy.unwrap_or(AccessPolicy::ProjectMembers);
    let name = validate_name(&body.name)?;
    let description = body
        .description
        .as_deref()
        .map(validate_description)
        .transpose()?;
    let labels = validate_labels(body.labels.unwrap_or_default())?;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let project = locked(&mut tx, &who, &project_id).await?;
    access::require_usable(&project)?;
    if stored::count(&mut tx, project.id).await? >= MAX_SERVERS {
        let detail = format!("The project already has {MAX_SERVERS} registered servers.");
        return Err(Problem::conflict().with_detail(detail).into());
    }
    let server = stored::WebttyServer {
        id: WebttyServerId::new(unix_millis(now), random::bytes()?),
        project_id: project.id,
        name,
        description,
        status: ServerStatus::PendingEnrollment.to_string(),
        recording_policy: recording.to_string(),
        encryption_policy: encryption.to_string(),
        access_policy: access.to_string(),
        labels: json!(labels),
        enrolment: None,
        enrolled_at: None,
        created_by: who.user.id,
        created_at: now,
        updated_at: now,
    };
    stored::insert(&mut tx, &server).await.map_err(taken)?;
    let action = "webtty_server.created";
    record(&mut tx, &who, &project, action, &server, now).await?;
    tx.commit().await?;
    let server = to_api(&server, &project)?;
    Ok((StatusCode::CREATED, Json(CreatedWebttyServer { server })))
}

pub(super) async fn update(
    Caller { principal: who, .. }: Caller<WebttyServersWrite>,
    State(app): State<Arc<App>>,
    Path((project_id, server_id)): Path<(String, String)>,
    Body(body): Body<UpdateWebttyServer>,
) -> HandlerResult<Json<WebttyServer>> {
    let new_name = body.name.as_deref().map(validate_name).transpose()?;
    let new_description = body
        .description
        .map(|given| given.as_deref().map(validate_description).transpose())
        .transpose()?;
    let new_labels = body.labels.map(validate_labels).transpose()?;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let project = locked(&mut tx, &who, &project_id).await?;
    let old = find_server(&mut tx, &project, &server_id).await?;
    if body.status.is_some() && old.enrolment.is_none() {
        let detail = "The server is not enrolled; it becomes active when it is.";
        let refusal = Problem::new(409, "not_enrolled", detail).with_field("status");
        return Err(refusal.into());
    }
    let status = body.status.map(|to| match to {
        WebttyServerChange::Active => ServerStatus::Active.to_string(),
        WebttyServerChange::Suspended => ServerStatus::Suspended.to_string(),
    });
    let mut new = stored::WebttyServer {
        name: new_name.unwrap_or_else(|| old.name.clone()),
        description: new_description.unwrap_or_else(|| old.description.clone()),
        status: status.unwrap_or_else(|| old.status.clone()),
        recording_policy: body
            .recording_policy
            .map_or_else(|| old.recording_policy.clone(), |to| to.to_string()),
        access_policy: body
            .access_policy
            .map_or_else(|| old.access_policy.clone(), |to| to.to_string()),
        labels: new_labels.map_or_else(|| old.labels.clone(), |to| json!(to)),
        ..old.clone()
    };
    if new == old {
        return Ok(Json(to_api(&old, &project)?));
    }
    new.updated_at = now;
    stored::update(&mut tx, &new).await.map_err(taken)?;
    let action = match body.status.filter(|_| new.status != old.status) {
        Some(WebttyServerChange::Active) => "webtty_server.resumed",
        Some(WebttyServerChange::Suspended) => "webtty_server.suspended",
        None => "webtty_server.updated",
    };
    record(&mut tx, &who, &project, action, &new, now).await?;
    tx.commit().await?;
    Ok(Json(to_api(&new, &project)?))
}

pub(super) async fn delete(
    Caller { principal: who, .. }: Caller<WebttyServersWrite>,
    State(app): State<Arc<App>>,
    Path((project_id, server_id)): Path<(String, String)>,
) -> HandlerResult<StatusCode> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let project = locked(&mut tx, &who, &project_id).await?;
    let server = find_server(&mut tx, &project, &server_id).await?;
    stored::delete(&mut tx, project.id, server.id, now).await?;
    let action = "webtty_server.deleted";
    record(&mut tx, &who, &project, action, &server, now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

fn taken(error: Error) -> Refusal {
    match error {
        Error::Conflict(Conflict::ServerNameTaken) => {
            let detail = "The project already has a registered server with this name.";
            let refusal = Problem::new(409, "name_taken", detail).with_field("name");
            refusal.into()
        }
        other => other.into(),
    }
}

fn validate_labels(given: Labels) -> HandlerResult<Labels> {
    check_labels(&given).map_err(Problem::from)?;
    Ok(given)
}

/// Maximum number of servers of one project. It allows a fleet, and limits the engine's memory
/// (half a kilobyte each).
const MAX_SERVERS: u64 = 500;
