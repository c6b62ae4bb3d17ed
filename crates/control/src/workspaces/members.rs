//! API to list, change and remove members of a workspace.

use std::sync::Arc;

use api::control::workspaces::{ChangeMember, Member, MemberList, MemberStatus};
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde_json::json;
use store::members::{self, Sort, Status};
use store::workspaces::Type;
use store::{Order, Tx};
use types::id::{UserId, WorkspaceId};
use types::permission::Permission;
use types::problem::Problem;

use super::crud::{conflict, word, workspace_and_role};
use super::role::Role;
use super::view;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::caller::access;
use crate::caller::{Caller, WorkspacesProtect, WorkspacesRead};
use crate::http_api::extract::{Body, ClientIp, Path, Query};
use crate::http_api::problem::HandlerResult;

/// `GET /api/workspaces/{workspace_id}/members`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller<WorkspacesRead>,
    Path(workspace): Path<String>,
    mut query: Query,
) -> HandlerResult<Json<MemberList>> {
    let search = query.text("q");
    let page = query.page()?;
    let sort = word(&mut query, "sort", |word| match word {
        "id" => Some(Sort::Id),
        "name" => Some(Sort::Name),
        "email" => Some(Sort::Email),
        "role" => Some(Sort::Role),
        _ => None,
    })?;
    let order = word(&mut query, "order", |word| match word {
        "asc" => Some(Order::Asc),
        "desc" => Some(Order::Desc),
        _ => None,
    })?;
    query.finish()?;
    let mut read = app.store.read().await?;
    let needed = Permission::AccountWorkspacesReadOnly;
    let found = access::workspace(&mut read, &caller.principal, &workspace, needed).await?;
    let rows = members::list(
        &mut read,
        found.id,
        search.as_deref(),
        sort.unwrap_or_default(),
        order.unwrap_or_default(),
        page.rows(),
    )
    .await?;
    Ok(Json(MemberList {
        members: rows.items.into_iter().map(view::member).collect(),
        paging: page.position(rows.total),
    }))
}

/// `PATCH /api/workspaces/{workspace_id}/members/{user_id}`
pub(super) async fn change(
    State(app): State<Arc<App>>,
    caller: Caller<WorkspacesProtect>,
    ClientIp(ip): ClientIp,
    Path((workspace, user)): Path<(String, String)>,
    Body(body): Body<ChangeMember>,
) -> HandlerResult<Json<Member>> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let (id, _) = workspace_and_role(&mut tx, &caller.principal, &workspace).await?;
    store::workspaces::lock(&mut tx, id).await?;
    // Checked again under the lock.
    let found = access::workspace(&mut tx, &caller.principal, &workspace, CHANGE).await?;
    let (workspace_id, caller_role) = (found.id, Role::from(found.member_role));
    let member = find_member(&mut tx, workspace_id, &user).await?;
    require_may_manage(caller_role, member.role.into())?;
    let role = body.role.map(Role::from);
    if let Some(role) = role {
        require_may_manage(caller_role, role)?;
        if Role::from(member.role) != role {
            require_allowed_role(found.kind, role)?;
        }
        if !members::set_role(&mut tx, workspace_id, member.id, role.into(), now).await? {
            return Err(conflict(LAST_OWNER));
        }
    }
    if let Some(status) = body.status {
        let status = match status {
            MemberStatus::Active => Status::Active,
            MemberStatus::Suspended => Status::Suspended,
        };
        if !members::set_status(&mut tx, workspace_id, member.id, status, now).await? {
            return Err(conflict(LAST_OWNER));
        }
    }
    audit::record_with(
        &mut tx,
        &Actor::caller(&caller.principal).with_ip(ip),
        Some(workspace_id),
        Action::MemberChanged,
        AuditTarget::User(member.id),
        json!({"role": body.role, "status": body.status}),
        now,
    )
    .await?;
    let changed = members::by_user(&mut tx, workspace_id, member.id).await?;
    let changed = changed.ok_or_else(Problem::not_found)?;
    tx.commit().await?;
    Ok(Json(view::member(changed)))
}

/// `DELETE /api/workspaces/{workspace_id}/members/{user_id}`: a member manager may remove members
/// up to their own role.
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller<WorkspacesProtect>,
    ClientIp(ip): ClientIp,
    Path((workspace, user)): Path<(String, String)>,
) -> HandlerResult<StatusCode> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let (workspace_id, caller_role) = if user == caller.principal.user.id.as_str() {
        // Every member may leave. This requires no role, only access to the workspace.
        let read = Permission::AccountWorkspacesReadOnly;
        let found = access::workspace(&mut tx, &caller.principal, &workspace, read).await?;
        access::require_active_workspace(found.status, CHANGE)?;
        (found.id, Role::Owner)
    } else {
        let (id, _) = workspace_and_role(&mut tx, &caller.principal, &workspace).await?;
        store::workspaces::lock(&mut tx, id).await?;
        // Checked again under the lock.
        workspace_and_role(&mut tx, &caller.principal, &workspace).await?
    };
    let member = find_member(&mut tx, workspace_id, &user).await?;
    require_may_manage(caller_role, member.role.into())?;
    if !members::delete(&mut tx, workspace_id, member.id, now).await? {
        return Err(conflict(LAST_OWNER));
    }
    let actor = Actor::caller(&caller.principal).with_ip(ip);
    let (action, target) = (Action::MemberRemoved, AuditTarget::User(member.id));
    audit::record(&mut tx, &actor, Some(workspace_id), action, target, now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn find_member(
    tx: &mut Tx,
    workspace: WorkspaceId,
    user: &str,
) -> HandlerResult<members::Member> {
    let user = user.parse::<UserId>().map_err(|_| Problem::not_found())?;
    let member = members::by_user(tx, workspace, user).await?;
    Ok(member.ok_or_else(Problem::not_found)?)
}

/// Members cannot give, change or remove a role stronger than their own.
pub(super) fn require_may_manage(own: Role, other: Role) -> HandlerResult<()> {
    if own.may_manage(other) {
        Ok(())
    } else {
        let needed = Permission::AccountWorkspaceProtectionReadWrite;
        Err(Problem::insufficient_scope(needed).into())
    }
}

/// A personal workspace keeps its one owner.
pub(super) fn require_allowed_role(kind: Type, role: Role) -> HandlerResult<()> {
    if kind == Type::Personal && role == Role::Owner {
        return Err(conflict("A personal workspace has exactly one owner."));
    }
    Ok(())
}

/// Leaving changes the workspace, so the credential needs this permission although the role does
/// not matter.
const CHANGE: Permission = Permission::AccountWorkspaceProtectionReadWrite;
const LAST_OWNER: &str = "A workspace must always have an owner: assign another one first.";
