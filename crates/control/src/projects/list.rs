//! `GET /api/projects/tunnels`: the projects that the caller may see (CP-2).

use std::sync::Arc;

use api::control::projects::ProjectList;
use axum::Json;
use axum::extract::State;
use store::projects::{self, List, ProjectSelection, Sort};
use store::{Conn, workspaces};
use types::id::{ProjectId, WorkspaceId};

use super::view;
use crate::app::App;
use crate::caller::{Caller, Principal, ProjectsRead};
use crate::http_api::extract::Query;
use crate::http_api::problem::HandlerResult;

pub(super) async fn list(
    caller: Caller<ProjectsRead>,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> HandlerResult<Json<ProjectList>> {
    let page = query.page()?;
    let sort = query.keyword("sort", &SORTS)?.unwrap_or_default();
    let order = query.order()?.unwrap_or_default();
    let search = query.text("q").filter(|text| !text.is_empty());
    let within = query.text("workspaceId");
    query.finish()?;

    let who = &caller.principal;
    let mut conn = app.store.read().await?;
    let member_of = workspaces::of_user(&mut conn, who.user.id).await?;
    let tenant: Vec<WorkspaceId> = member_of
        .iter()
        .map(|membership| membership.id)
        .filter(|id| within.as_deref().is_none_or(|within| within == id.as_str()))
        .collect();
    let reached = projects_in_boundary(&mut conn, who, &tenant).await?;
    let list = List {
        workspaces: &tenant,
        selection: match &reached {
            None => ProjectSelection::All,
            Some(projects) => ProjectSelection::Only {
                projects,
                workspaces: &[],
            },
        },
        search: search.as_deref(),
        sort,
        order,
        paging: page.rows(),
    };
    let found = projects::list(&mut conn, list).await?;
    let projects = found.items.iter().map(|project| view(&app, project));
    Ok(Json(ProjectList {
        projects: projects.collect::<HandlerResult<_>>()?,
        paging: page.position(found.total),
    }))
}

/// The projects of these workspaces inside the caller's boundary; `None` for all of them.
async fn projects_in_boundary(
    conn: &mut Conn,
    who: &Principal,
    tenant: &[WorkspaceId],
) -> HandlerResult<Option<Vec<ProjectId>>> {
    if !who.limits.boundary().has_tunnel_resource() {
        return Ok(None);
    }
    let places = projects::locations(conn, tenant, MAX_CHECKED).await?;
    let places = places.into_iter().filter(|place| {
        let (project, workspace) = (place.id.as_str(), place.workspace_id.as_str());
        who.limits.boundary().reaches(project, Some(workspace))
    });
    Ok(Some(places.map(|place| place.id).collect()))
}

/// Sort keys of project lists.
pub(crate) const SORTS: [(&str, Sort); 6] = [
    ("id", Sort::Id),
    ("name", Sort::Name),
    ("endpoint", Sort::Endpoint),
    ("status", Sort::Status),
    ("plan", Sort::Plan),
    ("deployment", Sort::Deployment),
];
/// Maximum number of projects that one list checks against a boundary. A caller with access to more
/// has a credential that names its resources, which are far fewer.
const MAX_CHECKED: u32 = 100_000;
