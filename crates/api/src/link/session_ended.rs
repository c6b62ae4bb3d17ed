//! Sessions at tunnels that their users ended.

use serde::{Deserialize, Serialize};

/// The end of a session at a tunnel. The platform sends it to all engines as
/// [`Item::Ended`](super::Item::Ended), with the prefix [`EDGE_SESSION`] before the id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEndedRecord {
    /// The project that owns the tunnel.
    pub project_id: String,
    /// Id of the session, which is the id of the code that started it.
    pub id: String,
}

/// Prefix of the ids of tunnel sessions among the revoked ids. An engine ends the sessions with
/// these ids and nothing else.
pub const EDGE_SESSION: &str = "edge:";

/// Maximum lifetime of a session at a tunnel, in seconds.
pub const EDGE_SESSION_SECONDS: i64 = 12 * 3600;
