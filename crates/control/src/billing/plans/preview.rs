//! `GET …/plan/config`: the options for creating a project (CP-3).

use std::sync::Arc;

use api::control::plans::PlanConfiguration;
use axum::Json;
use axum::extract::State;
use types::permission::Permission;

use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, PlanRead};
use crate::http_api::extract::{ClientIp, Query, Segment};
use crate::http_api::problem::HandlerResult;

pub(super) async fn preview(
    caller: Caller<PlanRead>,
    State(app): State<Arc<App>>,
    Segment(workspace): Segment,
    ClientIp(address): ClientIp,
    query: Query,
) -> HandlerResult<Json<PlanConfiguration>> {
    query.finish()?;
    let mut conn = app.store.read().await?;
    let workspace = access::workspace(&mut conn, &caller.principal, &workspace, PERMISSION).await?;
    let now = app.now();
    let snapshot = app
        .plan_service
        .snapshot(&mut conn, workspace.id, now)
        .await?;
    Ok(Json(app.plan_service.configuration(
        &snapshot,
        workspace.id,
        address,
    )))
}

const PERMISSION: Permission = Permission::AccountPlanReadOnly;
