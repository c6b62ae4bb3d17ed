//! Tunnels that callers of engines closed: entries of the audit log.

use std::collections::HashMap;

use api::link::TunnelClosedRecord;
use jiff::Timestamp;
use serde_json::json;
use store::{Tx, directory};
use types::id::{CredentialId, ProjectId, TunnelId, UserId};
use types::tunnel::TunnelName;

use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::problem::HandlerResult;

/// A validated record.
pub(super) struct ClosedTunnel {
    pub(super) project: ProjectId,
    tunnel: TunnelId,
    name: Option<TunnelName>,
    user: Option<UserId>,
    credential: Option<CredentialId>,
    closed_at: Timestamp,
}

impl ClosedTunnel {
    /// Validates a record. A time after `now` is not possible.
    ///
    /// # Errors
    /// The member that is invalid, and why.
    pub(super) fn read(
        record: TunnelClosedRecord,
        now: Timestamp,
    ) -> Result<Self, (&'static str, &'static str)> {
        let project = record.project_id.parse();
        let tunnel = record.tunnel_id.parse();
        // A later engine may allow other names, and other kinds of callers.
        let name = record.tunnel_name;
        let name = name.and_then(|name| name.parse::<TunnelName>().ok());
        Ok(Self {
            project: project.map_err(|_| ("project_id", "is not the id of a project"))?,
            tunnel: tunnel.map_err(|_| ("tunnel_id", "is not an id"))?,
            name,
            user: record.user_id.and_then(|id| id.parse().ok()),
            credential: record.credential_id.and_then(|id| id.parse().ok()),
            closed_at: record.closed_at.min(now),
        })
    }
}

/// Writes an entry for each tunnel. Tunnels of projects that the cluster does not serve are
/// skipped. Returns the number of the others.
pub(super) async fn record(
    tx: &mut Tx,
    served: &HashMap<ProjectId, directory::Project>,
    closed: Vec<ClosedTunnel>,
) -> HandlerResult<u64> {
    let mut count = 0;
    for tunnel in closed {
        let Some(project) = served.get(&tunnel.project) else {
            continue;
        };
        let actor = Actor::at_engine(tunnel.user, tunnel.credential);
        let workspace = Some(project.workspace_id);
        let (action, target) = (Action::TunnelClosed, AuditTarget::Tunnel(tunnel.tunnel));
        let details = match tunnel.name {
            Some(name) => json!({"project": project.id, "name": name}),
            None => json!({"project": project.id}),
        };
        let at = tunnel.closed_at;
        audit::record_with(tx, &actor, workspace, action, target, details, at).await?;
        count += 1;
    }
    Ok(count)
}
