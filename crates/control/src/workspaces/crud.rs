//! API to list, create, read, rename and delete workspaces.

use std::sync::Arc;

use api::control::workspaces::{Workspace, WorkspaceList, WorkspaceName};
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde_json::json;
use store::members::{self, Status};
use store::workspaces::{self, Type};
use types::id::{WorkspaceId, unix_millis};
use types::permission::Permission;
use types::problem::Problem;

use super::role::Role;
use super::view;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::caller::access;
use crate::caller::{Caller, Principal, WorkspacesProtect, WorkspacesRead};
use crate::http_api::extract::{Body, ClientIp, Path, Query};
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::people::accounts::parse_name;
use crate::runtime::random;

/// `GET /api/workspaces`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller<WorkspacesRead>,
    mut query: Query,
) -> HandlerResult<Json<WorkspaceList>> {
    let kind = word(&mut query, "type", Type::from_word)?;
    let status = word(&mut query, "membershipStatus", Status::from_word)?;
    query.finish()?;
    let who = &caller.principal;
    let mut read = app.store.read().await?;
    let mut found = match status {
        None | Some(Status::Active) => workspaces::of_user(&mut read, who.user.id).await?,
        Some(Status::Suspended) => {
            workspaces::of_user_in_any_status(&mut read, who.user.id).await?
        }
    };
    found.retain(|row| {
        status.is_none_or(|wanted| row.member_status == wanted)
            && kind.is_none_or(|wanted| row.kind == wanted)
            && who.limits.boundary().reaches_workspace(row.id.as_str())
    });
    let workspaces = found.into_iter().map(view::workspace).collect();
    Ok(Json(WorkspaceList { workspaces }))
}

/// `POST /api/workspaces`
pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller<WorkspacesProtect>,
    ClientIp(ip): ClientIp,
    Body(body): Body<WorkspaceName>,
) -> HandlerResult<(StatusCode, Json<Workspace>)> {
    let name = parse_name(&body.name)?;
    let now = app.now();
    let who = &caller.principal;
    let id = WorkspaceId::new(unix_millis(now), random::bytes()?);
    // A credential with a boundary must not create a workspace outside the boundary.
    if !who.limits.boundary().reaches_workspace(id.as_str()) {
        return Err(Problem::insufficient_scope(PROTECTION_PERMISSION).into());
    }
    let mut tx = app.store.begin().await?;
    require_workspace_quota(&mut tx, who).await?;
    workspaces::insert(&mut tx, id, Type::Team, &name, now).await?;
    members::insert(&mut tx, id, who.user.id, members::Role::Owner, None, now).await?;
    let actor = Actor::caller(who).with_ip(ip);
    let (action, target) = (Action::WorkspaceCreated, AuditTarget::Workspace(id));
    audit::record(&mut tx, &actor, Some(id), action, target, now).await?;
    let made = access::workspace(&mut tx, who, id.as_str(), PROTECTION_PERMISSION).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(view::workspace(made))))
}

/// `GET /api/workspaces/{workspace_id}`
pub(super) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller<WorkspacesRead>,
    Path(id): Path<String>,
) -> HandlerResult<Json<Workspace>> {
    let needed = Permission::AccountWorkspacesReadOnly;
    let mut read = app.store.read().await?;
    let found = access::workspace(&mut read, &caller.principal, &id, needed).await?;
    Ok(Json(view::workspace(found)))
}

/// `PATCH /api/workspaces/{workspace_id}`
pub(super) async fn rename(
    State(app): State<Arc<App>>,
    caller: Caller<WorkspacesProtect>,
    ClientIp(ip): ClientIp,
    Path(id): Path<String>,
    Body(body): Body<WorkspaceName>,
) -> HandlerResult<Json<Workspace>> {
    let name = parse_name(&body.name)?;
    let now = app.now();
    let who = &caller.principal;
    let mut tx = app.store.begin().await?;
    let found = access::workspace(&mut tx, who, &id, PROTECTION_PERMISSION).await?;
    workspaces::rename(&mut tx, found.id, &name, now).await?;
    audit::record_with(
        &mut tx,
        &Actor::caller(who).with_ip(ip),
        Some(found.id),
        Action::WorkspaceRenamed,
        AuditTarget::Workspace(found.id),
        json!({"from": found.name, "to": name}),
        now,
    )
    .await?;
    let renamed = access::workspace(&mut tx, who, &id, PROTECTION_PERMISSION).await?;
    tx.commit().await?;
    Ok(Json(view::workspace(renamed)))
}

/// `DELETE /api/workspaces/{workspace_id}`
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller<WorkspacesProtect>,
    ClientIp(ip): ClientIp,
    Path(id): Path<String>,
) -> HandlerResult<StatusCode> {
    let now = app.now();
    let who = &caller.principal;
    let mut tx = app.store.begin().await?;
    let found = access::workspace(&mut tx, who, &id, PROTECTION_PERMISSION).await?;
    require_owner(found.member_role.into())?;
    if found.kind == Type::Personal {
        return Err(conflict(
            "A personal workspace cannot be deleted: it belongs to its account.",
        ));
    }
    workspaces::lock(&mut tx, found.id).await?;
    if !workspaces::delete(&mut tx, found.id, now).await? {
        return Err(conflict(
            "The workspace has projects: delete or transfer them first.",
        ));
    }
    let actor = Actor::caller(who).with_ip(ip);
    let (action, target) = (Action::WorkspaceDeleted, AuditTarget::Workspace(found.id));
    audit::record(&mut tx, &actor, Some(found.id), action, target, now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses a workspace beyond the limit of the caller's own workspaces. Many requests read all
/// workspaces of a user. Concurrent creations may exceed the limit by a few.
async fn require_workspace_quota(tx: &mut store::Tx, who: &Principal) -> HandlerResult<()> {
    let all = workspaces::of_user_in_any_status(tx, who.user.id).await?;
    let own = all
        .iter()
        .filter(|row| row.member_role == members::Role::Owner);
    if own.count() < MAX_OWN {
        return Ok(());
    }
    let detail = format!("You own {MAX_OWN} workspaces; delete one first.");
    Err(Problem::conflict().with_detail(detail).into())
}

/// Far more than one user manages.
const MAX_OWN: usize = 100;

/// The id of a workspace and the caller's role in it, after [`access::workspace`] has admitted the
/// caller.
pub(super) async fn workspace_and_role(
    tx: &mut store::Tx,
    who: &Principal,
    workspace: &str,
) -> HandlerResult<(WorkspaceId, Role)> {
    let found = access::workspace(tx, who, workspace, PROTECTION_PERMISSION).await?;
    Ok((found.id, found.member_role.into()))
}

pub(super) fn conflict(detail: &'static str) -> Refusal {
    Problem::conflict().with_detail(detail).into()
}

fn require_owner(role: Role) -> HandlerResult<()> {
    if role == Role::Owner {
        Ok(())
    } else {
        Err(Problem::insufficient_scope(PROTECTION_PERMISSION).into())
    }
}

pub(super) fn word<T>(
    query: &mut Query,
    name: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> HandlerResult<Option<T>> {
    query
        .text(name)
        .map(|text| {
            read(&text).ok_or_else(|| {
                let detail = format!("{name} has an unknown value");
                Problem::invalid_request(detail).with_field(name).into()
            })
        })
        .transpose()
}

const PROTECTION_PERMISSION: Permission = Permission::AccountWorkspaceProtectionReadWrite;
