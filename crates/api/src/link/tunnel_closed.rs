//! Tunnels that callers of the Engine API closed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A caller of the Engine API closed a tunnel: an entry for the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelClosedRecord {
    /// The project of the tunnel.
    pub project_id: String,
    /// The tunnel.
    pub tunnel_id: String,
    /// Name of the tunnel, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_name: Option<String>,
    /// User of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Stored credential of the caller. Absent for a browser session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_id: Option<String>,
    /// Time of the close.
    pub closed_at: Timestamp,
}
