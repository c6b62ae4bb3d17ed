//! Address of a project's engine, for requests on behalf of a caller.

use store::projects::Project;
use types::permission::Permission;
use types::problem::Problem;

use super::region_of;
use crate::app::App;
use crate::caller::Principal;
use crate::caller::access;
use crate::http_api::problem::HandlerResult;

/// A project as a caller identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectSelector<'a> {
    /// By its id.
    Id(&'a str),
    /// By its endpoint.
    Endpoint(&'a str),
}

/// Address of a project's engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineAddress {
    /// Endpoint of the project.
    pub endpoint: String,
    /// Domain of the cluster; the engine is `<endpoint>.<cluster_domain>`.
    pub cluster_domain: String,
    /// Port of the engine.
    pub port: u16,
}

/// The engine of a project, if the caller has `permission` for it. The engine checks the caller
/// again. The check here prevents requests for projects that the caller may not see.
///
/// # Errors
/// 403 if the credential, the role or the boundary does not allow it, 404 if the caller is not a
/// member of the project's workspace, 503 if the platform has no engine at all.
pub async fn engine_of(
    app: &App,
    who: &Principal,
    project: ProjectSelector<'_>,
    permission: Permission,
) -> HandlerResult<EngineAddress> {
    if !who.allows(permission) {
        return Err(Problem::insufficient_scope(permission).into());
    }
    let mut conn = app.store.read().await?;
    let found = match project {
        ProjectSelector::Id(id) => access::project(&mut conn, who, id, permission).await?,
        ProjectSelector::Endpoint(endpoint) => {
            access::project_of_endpoint(&mut conn, who, endpoint, permission).await?
        }
    };
    address_of(app, &found.project)
}

/// The engine of a project that the caller may see.
///
/// # Errors
/// 503 if the platform has no engine at all.
pub(crate) fn address_of(app: &App, project: &Project) -> HandlerResult<EngineAddress> {
    let region = region_of(app, project).ok_or_else(Problem::unavailable)?;
    Ok(EngineAddress {
        endpoint: project.endpoint.clone(),
        cluster_domain: region.domain.clone(),
        port: region.engine_port,
    })
}
