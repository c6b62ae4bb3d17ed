//! Audit entries about projects.

use jiff::Timestamp;
use serde_json::Value;
use store::{Tx, audit};
use types::id::{AuditId, ProjectId, WorkspaceId};

use crate::caller::{Principal, Source};
use crate::problem::Answer;
use crate::random;

/// Writes an entry, in the transaction of the action.
pub(crate) async fn record(
    tx: &mut Tx,
    who: &Principal,
    workspace: WorkspaceId,
    project: ProjectId,
    action: &str,
    details: Value,
    now: Timestamp,
) -> Answer<()> {
    let entry = audit::Entry {
        id: AuditId::new(random::millis(now), random::bytes()?),
        workspace_id: Some(workspace),
        actor_user_id: Some(who.user.id),
        actor_credential_id: match who.source {
            Source::Credential(id) => Some(id),
            Source::Session(_) => None,
        },
        action: action.to_owned(),
        target_kind: "project".to_owned(),
        target_id: project.to_string(),
        details,
        ip: None,
        created_at: now,
    };
    audit::insert(tx, &entry).await?;
    Ok(())
}
