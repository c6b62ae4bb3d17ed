//! Whether a caller may touch what it names: tenancy first (404), then role and boundary (403).
//!
//! What is not the caller's to see answers exactly like what does not exist: one statement looks
//! for the thing and for the membership at once.
//!
//! Last comes the state: a workspace that an operator suspended can be read and not used.

use store::projects::{self, Visible};
use store::workspaces::{self, Membership};
use store::{Conn, Tx, members};
use types::permission::Permission;
use types::problem::Problem;

use crate::caller::Principal;
use crate::problem::{Answer, Refusal};
use crate::workspaces::role::Role;

/// The workspace, if the caller is an active member whose role and credential allow `permission`
/// there.
///
/// # Errors
/// 404 where the user has no part in it, 403 where the role or the boundary does not allow it, or
/// where it is suspended and the permission gives more than reading.
pub async fn workspace(
    conn: &mut Conn,
    who: &Principal,
    id: &str,
    permission: Permission,
) -> Answer<Membership> {
    let found = workspace_to_read(conn, who, id, permission).await?;
    require_in_use(found.status, permission)?;
    Ok(found)
}

/// [`workspace`] for what only reads and whose permission gives more: a suspended one is not
/// refused.
pub async fn workspace_to_read(
    conn: &mut Conn,
    who: &Principal,
    id: &str,
    permission: Permission,
) -> Answer<Membership> {
    // What is no id names nothing.
    let Ok(id) = id.parse() else {
        return Err(missing());
    };
    let found = workspaces::of_user_by_id(conn, who.user.id, id).await?;
    let found = found.ok_or_else(missing)?;
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
) -> Answer<Visible> {
    let Ok(id) = id.parse() else {
        return Err(missing());
    };
    let found = projects::of_user_by_id(conn, who.user.id, id).await?;
    in_use(visible(found, who, permission)?, permission)
}

/// [`project`], and until the transaction ends nobody else changes what is in its workspace: what
/// is decided about it still holds when it is written.
///
/// # Errors
/// Those of [`project`]; 409 where it was moved to another workspace meanwhile.
pub async fn locked_project(
    tx: &mut Tx,
    who: &Principal,
    id: &str,
    permission: Permission,
) -> Answer<projects::Project> {
    let before = project(tx, who, id, permission).await?.project;
    workspaces::lock(tx, before.workspace_id).await?;
    // Again, now that nobody can change it under us.
    let found = project(tx, who, id, permission).await?.project;
    if found.workspace_id != before.workspace_id {
        let moved = "The project has just moved to another workspace; try again.";
        return Err(Problem::conflict().with_detail(moved).into());
    }
    Ok(found)
}

/// [`project`] for what only reads and whose permission gives more.
pub async fn project_to_read(
    conn: &mut Conn,
    who: &Principal,
    id: &str,
    permission: Permission,
) -> Answer<Visible> {
    let Ok(id) = id.parse() else {
        return Err(missing());
    };
    let found = projects::of_user_by_id(conn, who.user.id, id).await?;
    visible(found, who, permission)
}

/// The project with this endpoint, under the same conditions (CP-5).
pub async fn project_of_endpoint(
    conn: &mut Conn,
    who: &Principal,
    endpoint: &str,
    permission: Permission,
) -> Answer<Visible> {
    let found = projects::of_user_by_endpoint(conn, who.user.id, endpoint).await?;
    in_use(visible(found, who, permission)?, permission)
}

/// Refuses a project that an operator suspended, for what uses it or moves it out of reach.
///
/// # Errors
/// 409 `project_suspended`.
pub fn require_usable(project: &projects::Project) -> Answer<()> {
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

/// 409 `not_in_plan`: what the plan of the project does not have, or not so many of.
pub(crate) fn not_in_plan(detail: String) -> Refusal {
    Problem::new(409, "not_in_plan", "")
        .with_detail(detail)
        .into()
}

/// Refuses a workspace that an operator suspended, for a permission that gives more than reading.
///
/// # Errors
/// 403 `workspace_suspended`.
pub fn require_in_use(status: workspaces::Status, permission: Permission) -> Answer<()> {
    let reads = permission
        .rules()
        .iter()
        .all(|rule| rule.actions == ["read"]);
    if status == workspaces::Status::Active || reads {
        return Ok(());
    }
    let detail = "An operator has suspended this workspace: it can be read and not used.";
    Err(Problem::new(403, "workspace_suspended", detail).into())
}

fn in_use(found: Visible, permission: Permission) -> Answer<Visible> {
    require_in_use(found.workspace_status, permission)?;
    Ok(found)
}

fn visible(found: Option<Visible>, who: &Principal, permission: Permission) -> Answer<Visible> {
    let found = found.ok_or_else(missing)?;
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

fn require_role(role: members::Role, permission: Permission) -> Answer<()> {
    if Role::from(role).allows(permission) {
        Ok(())
    } else {
        Err(Problem::insufficient_scope(permission).into())
    }
}

fn missing() -> Refusal {
    Problem::not_found().into()
}
