//! The audit log of a workspace.

use std::sync::Arc;

use api::control::people::{AuditEntry, AuditList};
use axum::Json;
use axum::extract::State;
use store::audit::{self, Entry, Scope};
use types::permission::Permission;

use super::AuditFilter;
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, CredentialsRead, WorkspacesProtect};
use crate::http_api::extract::{Path, Query};
use crate::http_api::problem::HandlerResult;
use crate::http_api::wire::date;

pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller<WorkspacesProtect>,
    Path(workspace): Path<String>,
    mut query: Query,
) -> HandlerResult<Json<AuditList>> {
    let page = query.page()?;
    let filter = AuditFilter::from_query(&mut query)?.with_actor(&mut query)?;
    query.finish()?;
    let needed = Permission::AccountWorkspaceProtectionReadWrite;
    let mut read = app.store.read().await?;
    let workspace =
        access::workspace_to_read(&mut read, &caller.principal, &workspace, needed).await?;
    let scope = Scope::Workspace(workspace.id);
    let found = audit::list(&mut read, scope, &filter.stored(), page.rows()).await?;
    Ok(Json(AuditList {
        entries: found.items.into_iter().map(entry).collect(),
        paging: page.position(found.total),
    }))
}

/// Entries of the caller's user. They include actions of the user's credentials and actions outside
/// any workspace.
pub(super) async fn list_own(
    State(app): State<Arc<App>>,
    Caller { principal: who, .. }: Caller<CredentialsRead>,
    mut query: Query,
) -> HandlerResult<Json<AuditList>> {
    let page = query.page()?;
    let filter = AuditFilter::from_query(&mut query)?;
    query.finish()?;
    let mut read = app.store.read().await?;
    let scope = Scope::User(who.user.id);
    let found = audit::list(&mut read, scope, &filter.stored(), page.rows()).await?;
    Ok(Json(AuditList {
        entries: found.items.into_iter().map(entry).collect(),
        paging: page.position(found.total),
    }))
}

/// Converts an entry into an API response.
pub(crate) fn entry(entry: Entry) -> AuditEntry {
    AuditEntry {
        id: entry.id.to_string(),
        action: entry.action,
        actor_user_id: entry.actor_user_id.map(|id| id.to_string()),
        actor_credential_id: entry.actor_credential_id.map(|id| id.to_string()),
        target_kind: entry.target_kind,
        target_id: entry.target_id,
        details: entry.details,
        ip: entry.ip,
        created_at: date(entry.created_at),
    }
}
