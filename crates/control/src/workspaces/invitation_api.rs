//! API to list, send and revoke invitations.

use std::sync::Arc;

use api::control::workspaces::{InvitationList, Invite, SentInvitation};
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use types::id::InvitationId;
use types::permission::Permission;
use types::problem::Problem;

use super::crud::workspace_and_role;
use super::members::{require_allowed_role, require_may_manage};
use super::{invitations, view};
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::caller::access;
use crate::caller::{Caller, WorkspacesProtect, WorkspacesRead};
use crate::http_api::extract::{Body, ClientIp, Path, Query};
use crate::http_api::problem::HandlerResult;
use crate::people::email::Email;

/// `GET /api/workspaces/{workspace_id}/invitations`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller<WorkspacesRead>,
    Path(workspace): Path<String>,
    mut query: Query,
) -> HandlerResult<Json<InvitationList>> {
    let page = query.page()?;
    query.finish()?;
    let now = app.now();
    let mut read = app.store.read().await?;
    let needed = Permission::AccountWorkspacesReadOnly;
    let membership = access::workspace(&mut read, &caller.principal, &workspace, needed).await?;
    let rows = store::invitations::list(&mut read, membership.id, page.rows()).await?;
    Ok(Json(InvitationList {
        invitations: rows
            .items
            .into_iter()
            .map(|row| view::invitation(row, now))
            .collect(),
        paging: page.position(rows.total),
    }))
}

/// `POST /api/workspaces/{workspace_id}/invitations`
pub(super) async fn invite(
    State(app): State<Arc<App>>,
    caller: Caller<WorkspacesProtect>,
    ClientIp(ip): ClientIp,
    Path(workspace): Path<String>,
    Body(body): Body<Invite>,
) -> HandlerResult<(StatusCode, Json<SentInvitation>)> {
    let email = Email::parse(&body.email)
        .map_err(|error| Problem::invalid_request(error.to_string()).with_field("email"))?;
    let role = body.role.into();
    let mut read = app.store.read().await?;
    let needed = Permission::AccountWorkspaceProtectionReadWrite;
    let membership = access::workspace(&mut read, &caller.principal, &workspace, needed).await?;
    drop(read);
    require_may_manage(membership.member_role.into(), role)?;
    require_allowed_role(membership.kind, role)?;
    let sent = invitations::send(&app, &caller.principal, &membership, email, role, ip).await?;
    Ok((
        StatusCode::CREATED,
        Json(SentInvitation {
            invitation: view::invitation(sent.invitation, app.now()),
            url: sent.url,
        }),
    ))
}

/// `DELETE /api/workspaces/{workspace_id}/invitations/{invitation_id}`
pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller<WorkspacesProtect>,
    ClientIp(ip): ClientIp,
    Path((workspace, id)): Path<(String, String)>,
) -> HandlerResult<StatusCode> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let (workspace_id, caller_role) =
        workspace_and_role(&mut tx, &caller.principal, &workspace).await?;
    let id = id
        .parse::<InvitationId>()
        .map_err(|_| Problem::not_found())?;
    let invitation = store::invitations::by_id(&mut tx, workspace_id, id).await?;
    let invitation = invitation.ok_or_else(Problem::not_found)?;
    require_may_manage(caller_role, invitation.role.into())?;
    if !store::invitations::revoke(&mut tx, workspace_id, id, now).await? {
        return Err(Problem::not_found().into());
    }
    let actor = Actor::caller(&caller.principal).with_ip(ip);
    let (action, target) = (Action::InvitationRevoked, AuditTarget::Invitation(id));
    audit::record(&mut tx, &actor, Some(workspace_id), action, target, now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
