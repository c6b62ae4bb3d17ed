//! Start of a session: its opener, its server and its transport.

use std::sync::Arc;

use tty::managed::{NewSession, Person};
use types::id::{ParticipantId, WebttySessionId, unix_millis};
use types::problem::Problem;
use types::webtty::{EncryptionMode, Transport};

use super::context::SessionContext;
use super::policy::Policy;
use super::recordings::{Meta, RecordingUnavailableError};
use super::registry::{SessionLimitError, SessionPermit};
use super::running::{ParticipantStream, RunningSession, SessionAttributes};
use super::upstream::Server;
use super::{relay, resource};
use crate::access::{Proof, Tenancy};
use crate::agents::Agent;
use crate::core::Worker;
use crate::edge::access_record::AccessRecord;
use crate::live::LiveTunnel;
use crate::random::random_bytes;

/// Client that opens a session.
#[derive(Debug)]
pub(crate) struct Opener {
    pub(crate) person: Person,
    pub(crate) context: SessionContext,
    pub(crate) policy: Policy,
    /// Transport between the client and the engine.
    pub(crate) transport: Transport,
}

/// A session that started, and the seat of its opener.
pub(crate) struct StartedSession {
    pub(crate) session: Arc<RunningSession>,
    pub(crate) seat: Arc<ParticipantStream>,
}

/// Reasons for which a session cannot start.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Full(#[from] SessionLimitError),
    #[error(transparent)]
    NotRecorded(#[from] RecordingUnavailableError),
}

impl From<StartError> for Problem {
    fn from(refused: StartError) -> Self {
        match refused {
            StartError::Full(full) => full.into(),
            StartError::NotRecorded(_) => Self::new(
                503,
                "recording_unavailable",
                "Terminals of this server are recorded, and recordings cannot be stored at the \
                 moment.",
            )
            .with_retry_after(RETRY_AFTER_SECONDS),
        }
    }
}

impl Opener {
    /// Describes the opener that presented this proof.
    pub(crate) fn from_proof(
        proof: Option<&Proof>,
        stated: SessionContext,
        policy: Policy,
        transport: Transport,
        tenancy: &Tenancy,
    ) -> Self {
        let user_id = proof.and_then(Proof::user_id).map(str::to_owned);
        let name = match proof {
            Some(Proof::Session(session)) => session.name.clone(),
            Some(proof) => display_name(user_id.as_deref(), tenancy)
                .or_else(|| proof.credential_id().map(str::to_owned)),
            None => None,
        };
        Self {
            person: Person {
                user_id,
                root: proof.map(Proof::root),
                name: truncated(&name.unwrap_or_default()),
                device_id: None,
                browser_id: None,
            },
            context: stated,
            policy,
            transport,
        }
    }
}

/// Display name of a user: the name, or else the id of the account.
pub(crate) fn display_name(user_id: Option<&str>, tenancy: &Tenancy) -> Option<String> {
    let user_id = user_id?;
    let name = tenancy.directory().and_then(|known| known.name_of(user_id));
    Some(truncated(&name.unwrap_or_else(|| user_id.to_owned())))
}

fn truncated(name: &str) -> String {
    name.chars().take(MAX_NAME).collect()
}

/// Starts a session and its task. `record` belongs to the visit that opened the session.
///
/// # Errors
/// [`RecordingUnavailableError`], with the record of the visit.
pub(crate) fn start_session(
    worker: &Arc<Worker>,
    tunnel: &Arc<LiveTunnel<Agent>>,
    opener: Opener,
    server: Server,
    (place, record): (SessionPermit, AccessRecord),
) -> Result<StartedSession, Box<(RecordingUnavailableError, AccessRecord)>> {
    let core = &worker.core;
    let now = core.clock.now();
    let millis = unix_millis(now);
    let id = WebttySessionId::new(millis, random_bytes());
    let initiator = ParticipantId::new(millis, random_bytes());
    let policy = opener.policy;
    let sealed = policy.encryption == EncryptionMode::E2e;
    let attributes = SessionAttributes {
        id,
        project: Arc::clone(&tunnel.project),
        workspace_id: tunnel.project.state().workspace_id.clone(),
        tunnel: Arc::clone(&tunnel.view),
        policy,
        context: opener.context,
        opener: opener.person.clone(),
        downstream: opener.transport,
        upstream: server.peer.transport,
    };
    let new = NewSession {
        id,
        initiator,
        person: opener.person,
        sealed,
    };
    let session = tty::managed::Session::new(new, now);
    let meta = Meta {
        project_id: Arc::clone(&attributes.project.id),
        session: resource::session(&attributes, &session, None, true),
        tunnel: Arc::clone(&attributes.tunnel),
        sealed,
    };
    let recording = match core.terminals.recorder.start(&meta) {
        Ok(recording) => recording,
        Err(error) => return Err(Box::new((error, record))),
    };
    let around = (Arc::clone(&core.clock), Arc::clone(&core.live));
    let (session, seat) = RunningSession::new(attributes, session, initiator, recording, around);
    let session = Arc::new(session);
    place.insert(&session);
    // The event is sent after the session can be found.
    session.update(|_, _| ());
    let running = relay::run(
        Arc::clone(&session),
        server,
        record,
        place,
        Arc::clone(worker),
    );
    worker.spawn(running);
    Ok(StartedSession { session, seat })
}

/// Longest display name in characters: a line of a terminal has room for more.
const MAX_NAME: usize = 60;

/// Seconds after which a client may retry.
const RETRY_AFTER_SECONDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Project;

    #[test]
    fn a_name_is_shown_up_to_60_characters() {
        let tenancy = Tenancy::Community(Arc::new(Project::community()));
        for (len, shown) in [(60, 60), (61, 60)] {
            let name = "\u{e9}".repeat(len);
            let shown_name = display_name(Some(&name), &tenancy).unwrap();
            assert_eq!(shown_name.chars().count(), shown);
        }
        assert_eq!(display_name(None, &tenancy), None);
    }
}
