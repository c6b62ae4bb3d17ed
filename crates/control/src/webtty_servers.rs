//! Registered `WebTTY` servers of a project (CP-12) with their own permissions (WT-6): records and
//! enrollment.
//!
//! A record is created first. Then the host with the keys enrolls itself, once. Engines receive
//! every change within a second. They only accept tunnels of a server that is enrolled and active.

mod enrollment;
mod manage;
mod read;

use std::sync::Arc;

use api::control::webtty_servers::{CREATE, DELETE, ENROLL, GET, LIST, UPDATE};
use axum::Router;
use jiff::Timestamp;
use serde_json::json;
use store::Tx;
use store::projects::Project;
use store::webtty_servers::WebttyServer;
use types::permission::Permission;
use types::problem::Problem;

use crate::app::App;
use crate::caller::Principal;
use crate::caller::access;
use crate::http_api::problem::HandlerResult;
use crate::http_api::route::OperationRouter as _;
use crate::projects::audit_entry;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(LIST, read::list)
        .serve(CREATE, manage::create)
        .serve(GET, read::get)
        .serve(UPDATE, manage::update)
        .serve(DELETE, manage::delete)
        .serve(ENROLL, enrollment::enroll)
}

/// The project, if the caller may change its servers. Its lock serialises concurrent changes.
///
/// A token that is restricted to tunnels may not change servers. Web pages have such a token with
/// the permission to open a terminal of a restricted server, and it appears in an address.
async fn locked(tx: &mut Tx, who: &Principal, id: &str) -> HandlerResult<Project> {
    let permission = Permission::NetworkWebttyServersReadWrite;
    let project = access::locked_project(tx, who, id, permission).await?;
    if !who.limits.boundary().is_of_projects() {
        return Err(Problem::insufficient_scope(permission).into());
    }
    Ok(project)
}

async fn record(
    tx: &mut Tx,
    who: &Principal,
    project: &Project,
    action: &str,
    server: &WebttyServer,
    now: Timestamp,
) -> HandlerResult<()> {
    let details = json!({"server": server.id, "name": server.name});
    let workspace = project.workspace_id;
    audit_entry::record_project_action(tx, who, workspace, project.id, action, details, now).await
}
