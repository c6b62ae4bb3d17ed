//! What holds for the sessions of a server.

use types::tunnel::Tunnel;
use types::webtty::{EncryptionMode, RecordingMode};

/// What holds for the sessions of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) server_id: Option<String>,
    pub(crate) recording: RecordingMode,
    pub(crate) encryption: EncryptionMode,
}

impl Policy {
    /// Of the server behind this tunnel.
    pub(crate) fn of(tunnel: &Tunnel) -> Self {
        let label = |name: &str| tunnel.properties.labels.get(name).map(String::as_str);
        let sealed = label(E2E) == Some("required")
            || label(ENCRYPTION_POLICY).is_some_and(|policy| policy != "disabled");
        Self {
            server_id: label(SERVER_ID).map(str::to_owned),
            recording: RecordingMode::Recorded,
            encryption: if sealed {
                EncryptionMode::E2e
            } else {
                EncryptionMode::Managed
            },
        }
    }
}

const SERVER_ID: &str = "svc.webtty.server_id";
const E2E: &str = "svc.webtty.e2e";
const ENCRYPTION_POLICY: &str = "svc.webtty.encryption_policy";
