//! Authorization of a caller for a resource: tenancy first (404), then role and boundary (403).
//!
//! A resource that the caller may not see gives exactly the same response as one that does not
//! exist. One statement looks up the resource and the membership together.
//!
//! The state is checked last. A workspace that an operator suspended can be read but not used.

use store::projects::{self, VisibleProject};
use store::workspaces::{self, Membership};
use store::{Conn, Tx, members};
use types::permission::Permission;
use types::problem::Problem;

use crate::caller::Principal;
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::workspaces::role::Role;

/// The workspace, if the caller is an active member with a role and a credential that allow
/// `permission` there.
///
/// # Errors
/// 404 if the user is not a member, 403 if the role or the boundary does not allow it, or if the
/// workspace is suspended and the permission allows more than reading.
pub async fn workspace(
    conn: &mut Conn,
    who: &Principal,
    id: &str,
    permission: Permission,
) -> HandlerResult<Membership> {
    let found = workspace_to_read(conn, who, id, permission).await?;
    require_active_workspace(found.status, permission)?;
    Ok(found)
}

/// [`workspace`] for operations that only read, although their permission also allows writing. A
/// suspended workspace is not refused.
pub async fn workspace_to_read(
    conn: &mut Conn,
    who: &Principal,
    id: &str,
    permission: Permission,
) -> HandlerResult<Membership> {
    // An invalid id matches no workspace.
    let Ok(id) = id.parse() else {
        return Err(not_found());
    };
    let found = workspaces::of_user_by_id(conn, who.user.id, id).await?;
    let found = found.ok_or_else(not_found)?;
    require_role(found.member_role, permission)?;
    if !who.limits.boundary().reaches_workspace(id.as_str()) {
        return Err(Problem::insufficient_scope(permission).into());
    }
    Ok(found)
}

/// The project with this id, under the same conditions.
pub async fn project(
    conn: &mut Conn,
    who: &Principal,
    id: &str,
    permission: Permission,
) -> HandlerResult<VisibleProject> {
    let Ok(id) = id.parse() else {
        return Err(not_found());
    };
    let found = projects::of_user_by_id(conn, who.user.id, id).await?;
    with_active_workspace(authorize(found, who, permission)?, permission)
}

/// [`project`] with a lock on the workspace. Until the transaction ends, no other request changes
/// its contents, so decisions about them remain valid when they are written.
///
/// # Errors
/// Those of [`project`]; 409 if the project was moved to another workspace meanwhile.
pub async fn locked_project(
    tx: &mut Tx,
    who: &Principal,
    id: &str,
    permission: Permission,
) -> HandlerResult<projects::Project> {
    let before = project(tx, who, id, permission).await?.project;
    workspaces::lock(tx, before.workspace_id).await?;
    // Checked again under the lock.
    let found = project(tx, who, id, permission).await?.project;
    if found.workspace_id != before.workspace_id {
        let moved = "The project has just moved to another workspace; try again.";
        return Err(Problem::conflict().with_detail(moved).into());
    }
    Ok(found)
}

/// [`project`] for operations that only read, although their permission also allows writing.
pub async fn project_to_read(
    conn: &mut Conn,
    who: &Principal,
    id: &str,
    permission: Permission,
) -> HandlerResult<VisibleProject> {
    let Ok(id) = id.parse() else {
        return Err(not_found());
    };
    let found = projects::of_user_by_id(conn, who.user.id, id).await?;
    authorize(found, who, permission)
}

/// The project with this endpoint, under the same conditions (CP-5).
pub async fn project_of_endpoint(
    conn: &mut Conn,
    who: &Principal,
    endpoint: &str,
    permission: Permission,
) -> HandlerResult<VisibleProject> {
    let found = projects::of_user_by_endpoint(conn, who.user.id, endpoint).await?;
    with_active_workspace(authorize(found, who, permission)?, permission)
}

/// Refuses a project that an operator suspended. For operations that use the project or move it out
/// of reach.
///
/// # Errors
/// 409 `project_suspended`.
pub fn require_usable(project: &projects::Project) -> HandlerResult<()> {
    match project.suspended_at {
        None => Ok(()),
        Some(_) => Err(project_suspended().into()),
    }
}

/// 409 `project_suspended`.
pub fn project_suspended() -> Problem {
    let detail = "An operator has suspended this project.";
    Problem::new(409, "project_suspended", detail)
}

/// 409 `not_in_plan`: the plan does not include the feature, or its limit for it is reached.
pub(crate) fn not_in_plan(detail: String) -> Refusal {
    Problem::new(409, "not_in_plan", "")
        .with_detail(detail)
        .into()
}

/// Refuses a workspace that an operator suspended, if the permission allows more than reading.
///
/// # Errors
/// 403 `workspace_suspended`.
pub fn require_active_workspace(
    status: workspaces::Status,
    permission: Permission,
) -> HandlerResult<()> {
    let reads = permission
        .rules()
        .iter()
        .all(|rule| rule.actions == ["read"]);
    if status == workspaces::Status::Active || reads {
        return Ok(());
    }
    let detail = "An operator has suspended this workspace: it can be read but not used.";
    Err(Problem::new(403, "workspace_suspended", detail).into())
}

fn with_active_workspace(
    found: VisibleProject,
    permission: Permission,
) -> HandlerResult<VisibleProject> {
    require_active_workspace(found.workspace_status, permission)?;
    Ok(found)
}

fn authorize(
    found: Option<VisibleProject>,
    who: &Principal,
    permission: Permission,
) -> HandlerResult<VisibleProject> {
    let found = found.ok_or_else(not_found)?;
    require_role(found.role, permission)?;
    let project = &found.project;
    let workspace = project.workspace_id.as_str();
    if !who
        .limits
        .boundary()
        .reaches(project.id.as_str(), Some(workspace))
    {
        return Err(Problem::insufficient_scope(permission).into());
    }
    Ok(found)
}

fn require_role(role: members::Role, permission: Permission) -> HandlerResult<()> {
    if Role::from(role).allows(permission) {
        Ok(())
    } else {
        Err(Problem::insufficient_scope(permission).into())
    }
}

fn not_found() -> Refusal {
    Problem::not_found().into()
}
