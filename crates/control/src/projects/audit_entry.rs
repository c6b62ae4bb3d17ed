//! Audit entries about projects.

use jiff::Timestamp;
use serde_json::Value;
use store::{Tx, audit};
use types::id::{AuditId, ProjectId, WorkspaceId, unix_millis};

use crate::caller::{Principal, Source};
use crate::http_api::problem::HandlerResult;
use crate::runtime::random;

/// Writes an audit entry in the same transaction as the action.
///
/// It is separate from [`crate::audit::record`], because the actions of projects are names that
/// their callers choose, not an [`Action`](crate::audit::Action).
pub(crate) async fn record_project_action(
    tx: &mut Tx,
    actor: &Principal,
    workspace: WorkspaceId,
    project: ProjectId,
    action: &str,
    details: Value,
    now: Timestamp,
) -> HandlerResult<()> {
    let entry = audit::Entry {
        id: AuditId::new(unix_millis(now), random::bytes()?),
        workspace_id: Some(workspace),
        actor_user_id: Some(actor.user.id),
        actor_credential_id: match actor.source {
            Source::Credential(id) => Some(id),
            Source::Session(_) => None,
        },
        action: action.to_owned(),
        target_kind: "project".to_owned(),
        target_id: project.to_string(),
        details,
        // The handlers that use this function do not extract the client's address.
        ip: None,
        created_at: now,
    };
    audit::insert(tx, &entry).await?;
    Ok(())
}
