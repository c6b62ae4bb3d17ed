//! Reading one project, by its id or by its endpoint (CP-5).

use std::sync::Arc;

use api::control::projects::Project;
use axum::Json;
use axum::extract::State;
use types::permission::Permission;

use super::view;
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, ProjectsRead};
use crate::http_api::extract::{Query, Segment};
use crate::http_api::problem::HandlerResult;

pub(super) async fn get(
    caller: Caller<ProjectsRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    query: Query,
) -> HandlerResult<Json<Project>> {
    query.finish()?;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &id, PERMISSION).await?;
    view(&app, &found.project).map(Json)
}

pub(super) async fn resolve(
    caller: Caller<ProjectsRead>,
    State(app): State<Arc<App>>,
    Segment(endpoint): Segment,
    query: Query,
) -> HandlerResult<Json<Project>> {
    query.finish()?;
    let mut conn = app.store.read().await?;
    let found =
        access::project_of_endpoint(&mut conn, &caller.principal, &endpoint, PERMISSION).await?;
    view(&app, &found.project).map(Json)
}

const PERMISSION: Permission = Permission::AccountProjectsReadOnly;
