//! API of the settings of a project. The store keeps only the values that differ from the defaults.

use std::sync::Arc;

use api::control::settings::{
    DELETE, GET, PATCH, PUT, ProjectSettings, ProjectSettingsPatch, ReplaceProjectSettings,
};
use axum::extract::State;
use axum::{Json, Router};
use http::StatusCode;
use serde::Deserialize as _;
use serde_json::{Value, json};
use store::projects;
use types::permission::Permission;
use types::problem::Problem;

use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, Principal, ProjectsWrite};
use crate::http_api::extract::{Body, Query, Segment};
use crate::http_api::problem::HandlerResult;
use crate::http_api::route::OperationRouter as _;
use crate::projects::audit_entry;
use crate::projects::settings::validate;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(GET, get)
        .serve(PATCH, patch)
        .serve(PUT, put)
        .serve(DELETE, reset)
}

async fn get(
    caller: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    query: Query,
) -> HandlerResult<Json<ProjectSettings>> {
    query.finish()?;
    let mut conn = app.store.read().await?;
    let found = access::project_to_read(&mut conn, &caller.principal, &id, PERMISSION).await?;
    read(&found.project.settings).map(Json)
}

async fn patch(
    caller: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    Body(patch): Body<ProjectSettingsPatch>,
) -> HandlerResult<Json<ProjectSettings>> {
    // The patch itself is validated before any lookup.
    validate(
        patch.clone().apply(ProjectSettings::default()),
        app.plan_service.has_geo(),
    )?;
    let change = |old| Ok(patch.clone().apply(old));
    write(&app, &caller.principal, &id, change).await.map(Json)
}

async fn put(
    caller: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    Body(body): Body<ReplaceProjectSettings>,
) -> HandlerResult<Json<ProjectSettings>> {
    let new = validate(body.into(), app.plan_service.has_geo())?;
    write(&app, &caller.principal, &id, |_| Ok(new.clone()))
        .await
        .map(Json)
}

async fn reset(
    caller: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> HandlerResult<StatusCode> {
    write(&app, &caller.principal, &id, |_| {
        Ok(ProjectSettings::default())
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Changes the current settings. Concurrent changes do not undo each other.
async fn write(
    app: &App,
    who: &Principal,
    id: &str,
    change: impl Fn(ProjectSettings) -> HandlerResult<ProjectSettings>,
) -> HandlerResult<ProjectSettings> {
    for _ in 0..ATTEMPTS {
        let now = app.now();
        let mut tx = app.store.begin().await?;
        let found = access::project(&mut tx, who, id, PERMISSION).await?;
        let project = found.project;
        let old = read(&project.settings)?;
        let new = validate(change(old.clone())?, app.plan_service.has_geo())?;
        if new == old {
            return Ok(new);
        }
        let (id, workspace) = (project.id, project.workspace_id);
        let text = non_default_members(&new)?;
        if projects::set_settings(&mut tx, id, &project.settings, &text, now).await? {
            let details = json!({"settings": text});
            let action = "project.settings_changed";
            audit_entry::record_project_action(&mut tx, who, workspace, id, action, details, now)
                .await?;
            tx.commit().await?;
            return Ok(new);
        }
    }
    Err(Problem::conflict()
        .with_detail("Another user is changing these settings; try again.")
        .into())
}

/// The settings of a project.
pub(crate) fn project_settings(project: &projects::Project) -> HandlerResult<ProjectSettings> {
    read(&project.settings)
}

fn read(stored: &Value) -> HandlerResult<ProjectSettings> {
    ProjectSettings::deserialize(stored).map_err(|_| {
        tracing::error!("the stored settings of a project cannot be read");
        Problem::internal().into()
    })
}

/// The members that are not at their default. If a default changes with a version, it changes for
/// every project without its own value.
fn non_default_members(settings: &ProjectSettings) -> HandlerResult<Value> {
    let failed = |_| Problem::internal();
    let default = serde_json::to_value(ProjectSettings::default()).map_err(failed)?;
    let mut value = serde_json::to_value(settings).map_err(failed)?;
    if let Some(members) = value.as_object_mut() {
        members.retain(|name, member| default.get(name) != Some(member));
    }
    Ok(value)
}

/// The settings restrict visitors. Reading them requires the same permission as writing them
/// (`types::permission`).
const PERMISSION: Permission = Permission::AccountProjectsReadWrite;
/// Two users who change the same settings at the same time are rare. Three would be a program.
const ATTEMPTS: usize = 3;
