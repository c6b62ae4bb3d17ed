//! Rules for the sessions of a server: permission to open and to join them, recording and
//! encryption.

use std::sync::Arc;

use credentials::VerifiedToken;
use tty::admission::SERVER_ID;
use types::problem::Problem;
use types::tunnel::Tunnel;
use types::webtty::{EncryptionMode, EncryptionPolicy, RecordingMode, RecordingPolicy};

use crate::access::{BoundaryDenial, Proof, Tenancy};
use crate::directory::{Project, WebttyServer};

/// Rules of one session, fixed when it starts.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) server: Arc<WebttyServer>,
    pub(crate) recording: RecordingMode,
    pub(crate) encryption: EncryptionMode,
}

/// Reasons for which a client may not use a server.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ServerAccessError {
    #[error("the server is no longer registered, or is suspended")]
    ServerUnavailable,
    #[error("the server is restricted: {0}")]
    Restricted(BoundaryDenial),
}

impl From<ServerAccessError> for Problem {
    fn from(error: ServerAccessError) -> Self {
        match error {
            ServerAccessError::ServerUnavailable => {
                Self::unavailable().with_detail(error.to_string())
            }
            ServerAccessError::Restricted(denied) => denied.into(),
        }
    }
}

impl Policy {
    /// Determines the rules for a session that is opened now with this proof.
    ///
    /// # Errors
    /// [`ServerAccessError`].
    pub(crate) fn for_session(
        tunnel: &Tunnel,
        project: &Project,
        proof: Option<&Proof>,
        tenancy: &Tenancy,
    ) -> Result<Self, ServerAccessError> {
        let server =
            server_of(tunnel, project, tenancy).ok_or(ServerAccessError::ServerUnavailable)?;
        if let Some(permission) = server.needs() {
            let user_id = proof.and_then(Proof::user_id);
            let required = match proof {
                Some(Proof::Token { token, .. }) => tenancy.require(token, project, permission),
                Some(Proof::Certificate { credential, .. }) => tenancy.require_for_user(
                    user_id,
                    credential.limits.permissions(),
                    project,
                    permission,
                ),
                Some(Proof::Session(_)) | None => {
                    tenancy.require_for_user(user_id, None, project, permission)
                }
            };
            required.map_err(ServerAccessError::Restricted)?;
        }
        let sealed = server.encryption != EncryptionPolicy::Disabled;
        Ok(Self {
            recording: match server.recording {
                RecordingPolicy::Recorded => RecordingMode::Recorded,
                RecordingPolicy::Private => RecordingMode::Private,
            },
            encryption: if sealed {
                EncryptionMode::E2e
            } else {
                EncryptionMode::Managed
            },
            server,
        })
    }

    /// Checks if a client may join a session of the server under the current requirements.
    ///
    /// # Errors
    /// [`BoundaryDenial`].
    pub(crate) fn admits(
        &self,
        token: &VerifiedToken,
        project: &Project,
        tenancy: &Tenancy,
    ) -> Result<(), BoundaryDenial> {
        let directory = tenancy.directory();
        let current = directory.and_then(|known| known.webtty_server(&project.id, &self.server.id));
        let needs = current.as_ref().unwrap_or(&self.server).needs();
        needs.map_or(Ok(()), |needs| tenancy.require(token, project, needs))
    }
}

/// Finds the registered server of an admitted tunnel.
fn server_of(tunnel: &Tunnel, project: &Project, tenancy: &Tenancy) -> Option<Arc<WebttyServer>> {
    let id = tunnel.properties.labels.get(SERVER_ID)?;
    let server = tenancy.directory()?.webtty_server(&project.id, id)?;
    server.is_active().then_some(server)
}
