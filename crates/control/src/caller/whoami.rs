//! `GET /api/whoami` (CP-1).

use std::sync::Arc;

use api::control::whoami::{WHOAMI, Whoami};
use axum::extract::State;
use axum::{Json, Router};
use store::workspaces::Membership;
use store::{Conn, projects, workspaces};

use crate::app::App;
use crate::caller::{AnyCaller, Caller, Principal};
use crate::http_api::extract::Query;
use crate::http_api::problem::HandlerResult;
use crate::http_api::route::OperationRouter as _;
use crate::http_api::wire::date;

/// Routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new().serve(WHOAMI, whoami)
}

async fn whoami(
    Caller { principal: who, .. }: Caller<AnyCaller>,
    State(app): State<Arc<App>>,
    query: Query,
) -> HandlerResult<Json<Whoami>> {
    query.finish()?;
    let mut read = app.store.read().await?;
    let workspace_ids = reachable_workspaces(&mut read, &who).await?;
    let user = &who.user;
    Ok(Json(Whoami {
        id: user.id.to_string(),
        role: user.role.to_string(),
        name: Some(user.name.clone()).filter(|name| !name.is_empty()),
        email: user.email.clone(),
        kind: who.kind,
        workspace_ids,
        permissions: who.permissions().iter().collect(),
        resources: who.resources.clone(),
        expires_at: who.expires_at().map(date),
    }))
}

/// The workspaces of the caller inside its credential's boundary, oldest first.
async fn reachable_workspaces(conn: &mut Conn, who: &Principal) -> HandlerResult<Vec<String>> {
    let memberships = workspaces::of_user(conn, who.user.id).await?;
    let (whole, others): (Vec<_>, Vec<_>) = memberships.iter().partition(|membership| {
        who.limits
            .boundary()
            .reaches_workspace(membership.id.as_str())
    });
    let mut ids: Vec<_> = whole.iter().map(|membership| membership.id).collect();
    if !others.is_empty() && who.limits.boundary().has_tunnel_resource() {
        // A boundary that names projects includes the workspaces of these projects.
        let others: Vec<_> = others
            .iter()
            .map(|membership: &&Membership| membership.id)
            .collect();
        let places = projects::locations(conn, &others, MAX_PROJECTS).await?;
        ids.extend(
            places
                .iter()
                .filter(|place| {
                    who.limits
                        .boundary()
                        .reaches(place.id.as_str(), Some(place.workspace_id.as_str()))
                })
                .map(|place| place.workspace_id),
        );
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids.iter().map(ToString::to_string).collect())
}

/// Maximum number of projects that are checked against a boundary which names some. Only a few
/// users have access to more.
const MAX_PROJECTS: u32 = 10_000;
