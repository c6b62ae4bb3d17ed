//! Registered terminal servers: their enrolled keys, the policies of their sessions, and the check
//! that a tunnel belongs to them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tty::admission::{self, AdmissionError, NONCE_LEN, Subject};
use tty::identity::{PublicIdentity, SigningPublicKey, encryption_key};
use types::permission::Permission;
use types::webtty::{AccessPolicy, EncryptionPolicy, RecordingPolicy, ServerStatus};

/// A registered server, as last received from the platform. Its sessions have a reference to it and
/// end with [`Self::ended`]. Policies of new sessions are looked up again.
pub struct WebttyServer {
    /// Id.
    pub id: Arc<str>,
    /// Id of its project.
    pub project_id: Arc<str>,
    /// Name, unique in the project.
    pub name: Arc<str>,
    /// Recording of its sessions.
    pub recording: RecordingPolicy,
    /// Encryption of its sessions.
    pub encryption: EncryptionPolicy,
    /// Users who may use it.
    pub access: AccessPolicy,
    /// The keys of its enrolment.
    pub keys: Option<PublicIdentity>,
    status: Option<ServerStatus>,
    /// Cancelled when it is suspended, deleted, or enrolled with other keys.
    ended: CancellationToken,
    /// Proofs that were used, until they expire.
    used_proofs: Arc<Mutex<UsedProofs>>,
}

type UsedProofs = HashMap<[u8; NONCE_LEN], Timestamp>;

/// Limit of remembered proofs of one server. A server makes one for each connection, so a working
/// server does not need more within their lifetime.
const MAX_USED_PROOFS: usize = 64;

impl WebttyServer {
    /// Values that cannot be parsed are treated as the strictest ones.
    pub(super) fn compile(record: &api::link::WebttyServer, known: Option<&Self>) -> Self {
        let keys = record.keys.as_ref().and_then(|keys| {
            Some(PublicIdentity {
                encryption: encryption_key(&keys.encryption).ok()?,
                signing: SigningPublicKey::parse(&keys.signing).ok()?,
            })
        });
        let mut server = Self {
            id: record.id.as_str().into(),
            project_id: record.project_id.as_str().into(),
            name: record.name.as_str().into(),
            recording: record
                .recording_policy
                .parse()
                .unwrap_or(RecordingPolicy::Recorded),
            encryption: record
                .encryption_policy
                .parse()
                .unwrap_or(EncryptionPolicy::WorkspaceManaged),
            access: record
                .access_policy
                .parse()
                .unwrap_or(AccessPolicy::Restricted),
            keys,
            status: record.status.parse().ok(),
            ended: CancellationToken::new(),
            used_proofs: Arc::default(),
        };
        if let Some(known) = known {
            server.used_proofs = Arc::clone(&known.used_proofs);
            if known.sessions_continue_under(&server) {
                server.ended = known.ended.clone();
            }
        }
        server
    }

    /// Returns true if it may serve: it is enrolled and not suspended.
    pub fn is_active(&self) -> bool {
        self.status == Some(ServerStatus::Active) && self.keys.is_some()
    }

    /// Resolves when its sessions have to end: it was suspended, deleted, or enrolled with other
    /// keys. A change of its policies ends nothing.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// The permission that is required to open or join a session, in addition to those of sessions.
    pub fn needs(&self) -> Option<Permission> {
        (self.access == AccessPolicy::Restricted)
            .then_some(Permission::NetworkWebttyServersReadWrite)
    }

    /// Checks the proof that a tunnel of this server sends. A valid proof is remembered and refused
    /// from then on.
    ///
    /// # Errors
    /// [`ServerAdmissionError`].
    pub fn admit(
        &self,
        proof: &str,
        subject: Subject<'_>,
        now: Timestamp,
    ) -> Result<(), ServerAdmissionError> {
        let Some(keys) = &self.keys else {
            return Err(ServerAdmissionError::NotEnrolled);
        };
        if !self.is_active() {
            return Err(ServerAdmissionError::Suspended);
        }
        let admitted = admission::verify(proof, &keys.signing, subject, now)?;
        let mut used_proofs = self.used_proofs.lock();
        used_proofs.retain(|_, until| *until > now);
        if used_proofs.contains_key(&admitted.nonce) {
            return Err(ServerAdmissionError::Replayed);
        }
        if used_proofs.len() >= MAX_USED_PROOFS {
            return Err(ServerAdmissionError::TooMany);
        }
        used_proofs.insert(admitted.nonce, admitted.expires_at);
        Ok(())
    }

    /// Returns true if sessions of this one may continue under `next`.
    pub(super) fn sessions_continue_under(&self, next: &Self) -> bool {
        self.is_active()
            && next.is_active()
            && self.keys == next.keys
            && self.project_id == next.project_id
    }

    pub(super) fn end(&self) {
        self.ended.cancel();
    }
}

impl fmt::Debug for WebttyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebttyServer")
            .field("id", &self.id)
            .field("project_id", &self.project_id)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// Reasons why a tunnel is not accepted as a registered server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerAdmissionError {
    /// Its labels do not name a server, or have no proof.
    #[error(
        "a tunnel of the protocol `webtty` has the labels `{}` and `{}`",
        admission::SERVER_ID,
        admission::LABEL
    )]
    Unlabelled,
    /// There is no such server in this project.
    #[error("this project has no such registered server")]
    Unknown,
    /// The server has no keys.
    #[error("the server is not enrolled")]
    NotEnrolled,
    /// It is suspended.
    #[error("the server is suspended")]
    Suspended,
    /// The proof is not valid.
    #[error(transparent)]
    Proof(#[from] AdmissionError),
    /// The proof was used before.
    #[error("the admission proof was used before")]
    Replayed,
    /// There were more proofs than a server needs.
    #[error("the server connects too often; wait until its earlier admission proofs have expired")]
    TooMany,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::link::{Item, WebttyServerKeys};
    use tty::identity::EndpointIdentity;

    use super::*;
    use crate::directory::Directory;

    fn told(status: &str, identity: &EndpointIdentity) -> api::link::WebttyServer {
        let public = identity.public();
        api::link::WebttyServer {
            id: "wtty_1".to_owned(),
            project_id: "prj_1".to_owned(),
            name: "build".to_owned(),
            status: status.to_owned(),
            recording_policy: "recorded".to_owned(),
            encryption_policy: "disabled".to_owned(),
            access_policy: "project_members".to_owned(),
            keys: Some(WebttyServerKeys {
                encryption: public.encryption_text(),
                signing: public.signing.to_text(),
            }),
        }
    }

    fn item(told: api::link::WebttyServer) -> Item {
        Item::WebttyServer(Box::new(told))
    }

    fn subject(labels: &BTreeMap<String, String>) -> Subject<'_> {
        Subject {
            project_id: "prj_1",
            server_id: "wtty_1",
            tunnel_protocol: "webtty",
            tunnel_type: "bytestream",
            labels,
        }
    }

    fn proof(identity: &EndpointIdentity, nonce: u8) -> String {
        let labels = BTreeMap::new();
        let nonce = [nonce; NONCE_LEN];
        admission::sign(&identity.signing, "wks_1", subject(&labels), nonce, now()).unwrap()
    }

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    /// CP-12: a proof is valid once, even after the record has changed, and only while the server
    /// is active.
    #[test]
    fn cp_12_a_proof_is_valid_once_and_for_an_active_server() {
        let identity = EndpointIdentity::generate().unwrap();
        let directory = Directory::default();
        let labels = BTreeMap::new();
        let server = || directory.webtty_server("prj_1", "wtty_1").unwrap();
        let admit = |proof: &str| server().admit(proof, subject(&labels), now());
        directory.apply(vec![item(told("active", &identity))]);
        assert!(directory.webtty_server("prj_2", "wtty_1").is_none());
        let first = proof(&identity, 1);
        assert_eq!(admit(&first), Ok(()));
        assert_eq!(admit(&first), Err(ServerAdmissionError::Replayed));
        let renamed = api::link::WebttyServer {
            name: "other".to_owned(),
            ..told("active", &identity)
        };
        directory.apply(vec![item(renamed)]);
        assert_eq!(admit(&first), Err(ServerAdmissionError::Replayed));
        directory.apply(vec![item(told("suspended", &identity))]);
        assert_eq!(
            admit(&proof(&identity, 2)),
            Err(ServerAdmissionError::Suspended)
        );
        directory.apply(vec![item(told("rebooting", &identity))]);
        assert_eq!(
            admit(&proof(&identity, 2)),
            Err(ServerAdmissionError::Suspended)
        );
        let other = EndpointIdentity::generate().unwrap();
        directory.apply(vec![item(told("active", &other))]);
        assert_eq!(
            admit(&proof(&identity, 2)),
            Err(ServerAdmissionError::Proof(AdmissionError::OtherKey))
        );
        let pending = api::link::WebttyServer {
            keys: None,
            ..told("pending_enrollment", &identity)
        };
        directory.apply(vec![item(pending)]);
        assert_eq!(
            admit(&proof(&identity, 2)),
            Err(ServerAdmissionError::NotEnrolled)
        );
    }

    /// The number of remembered proofs is bounded, and they are dropped when they expire.
    #[test]
    fn a_server_that_connects_too_often_is_refused() {
        let identity = EndpointIdentity::generate().unwrap();
        let server = WebttyServer::compile(&told("active", &identity), None);
        let labels = BTreeMap::new();
        for nonce in 0..64 {
            let proof = proof(&identity, nonce);
            assert_eq!(server.admit(&proof, subject(&labels), now()), Ok(()));
        }
        let more = proof(&identity, 64);
        assert_eq!(
            server.admit(&more, subject(&labels), now()),
            Err(ServerAdmissionError::TooMany)
        );
        let later = now() + admission::LIFETIME;
        let nonce = [65; NONCE_LEN];
        let more = admission::sign(&identity.signing, "wks_1", subject(&labels), nonce, later);
        assert_eq!(
            server.admit(&more.unwrap(), subject(&labels), later),
            Ok(())
        );
    }

    /// CP-12: suspending, deleting and new keys end the sessions; policies do not.
    #[test]
    fn cp_12_some_changes_end_the_sessions_of_a_server() {
        let identity = EndpointIdentity::generate().unwrap();
        let directory = Directory::default();
        let held = || directory.webtty_server("prj_1", "wtty_1").unwrap();
        let active = || item(told("active", &identity));

        directory.apply(vec![active()]);
        let server = held();
        let private = api::link::WebttyServer {
            recording_policy: "private".to_owned(),
            access_policy: "restricted".to_owned(),
            ..told("active", &identity)
        };
        directory.apply(vec![item(private)]);
        assert!(!server.ended().is_cancelled());
        assert_eq!(held().recording, RecordingPolicy::Private);
        assert!(server.needs().is_none());
        assert!(held().needs().is_some());

        directory.apply(vec![item(told("suspended", &identity))]);
        assert!(server.ended().is_cancelled());

        let gone = Item::WebttyServerGone {
            id: "wtty_1".to_owned(),
        };
        let project = Item::ProjectGone {
            id: "prj_1".to_owned(),
        };
        let other = item(told("active", &EndpointIdentity::generate().unwrap()));
        for end in [gone, project, other] {
            directory.apply(vec![active()]);
            let server = held();
            assert!(!server.ended().is_cancelled());
            directory.apply(vec![end]);
            assert!(server.ended().is_cancelled());
        }
    }
}
