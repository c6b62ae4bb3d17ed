//! `PATCH` and `DELETE` of a project.

use std::sync::Arc;

use api::control::projects::{Project, UpdateProject};
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde_json::json;
use store::{addresses, capacity, deliveries, domains, projects, webhooks};
use types::permission::Permission;
use types::problem::Problem;

use super::name::ProjectName;
use super::{audit_entry, view};
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, ProjectsWrite};
use crate::http_api::extract::{Body, Segment};
use crate::http_api::problem::HandlerResult;

/// Renames a project. The same name again changes nothing and is not an error.
pub(super) async fn rename(
    caller: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    Body(body): Body<UpdateProject>,
) -> HandlerResult<Json<Project>> {
    let name = ProjectName::parse(body.name)
        .map_err(|error| Problem::invalid_request(format!("name: {error}")).with_field("name"))?;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let found = access::project(&mut tx, &caller.principal, &id, PERMISSION).await?;
    let project = found.project;
    access::require_usable(&project)?;
    if !projects::rename(&mut tx, project.id, name.as_str(), now).await? {
        return Err(Problem::not_found().into());
    }
    let details = json!({"from": project.name, "to": name.as_str()});
    let (workspace, action) = (project.workspace_id, "project.renamed");
    let who = &caller.principal;
    audit_entry::record_project_action(&mut tx, who, workspace, project.id, action, details, now)
        .await?;
    tx.commit().await?;
    let renamed = projects::Project {
        name: name.to_string(),
        ..project
    };
    view(&app, &renamed).map(Json)
}

/// Deletes a project. Its capacity in the region, its reserved ports and its domains become free,
/// its webhooks get no further events, and the subscription is reduced.
pub(super) async fn delete(
    caller: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> HandlerResult<StatusCode> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let project = access::locked_project(&mut tx, &caller.principal, &id, PERMISSION).await?;
    let workspace = project.workspace_id;
    // Of several concurrent requests, only one deletes the project and returns its resources.
    if !projects::delete(&mut tx, project.id, now).await? {
        return Err(Problem::not_found().into());
    }
    let region = project.region.as_deref().unwrap_or_default();
    capacity::release(&mut tx, &project.provider, region, &project.plan).await?;
    addresses::release_all(&mut tx, project.id, now).await?;
    domains::delete_all(&mut tx, project.id, now).await?;
    // The lock order is the same as for recording an attempt.
    webhooks::delete_all(&mut tx, project.id, now).await?;
    deliveries::cancel_all(&mut tx, project.id, now).await?;
    let billing = app.plan_service.billing();
    billing.remove(&mut tx, workspace, project.id, now).await?;
    let details = json!({"name": project.name, "endpoint": project.endpoint});
    let action = "project.deleted";
    let who = &caller.principal;
    audit_entry::record_project_action(&mut tx, who, workspace, project.id, action, details, now)
        .await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

const PERMISSION: Permission = Permission::AccountProjectsReadWrite;
