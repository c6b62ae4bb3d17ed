//! What is known of a caller once its credential was verified.

use api::control::whoami::CallerKind;
use credentials::Limits;
use jiff::Timestamp;
use serde_json::Value;
use store::users::User;
use types::id::{CredentialId, SessionId};
use types::permission::{Permission, Permissions};

/// A verified caller. It acts for a user, within the permissions and boundaries of its credential
/// and within that user's roles.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Kind of the credential.
    pub kind: CallerKind,
    /// The user for whom it acts: of a credential, its owner. Active when it was asked.
    pub user: User,
    /// The stored thing behind the credential; what is minted from it dies with it.
    pub source: Source,
    /// The first credential of the chain that issued the one behind the caller; none for a session.
    pub root: Option<CredentialId>,
    /// When that last changed.
    pub source_updated_at: Timestamp,
    /// Its permissions, its boundary and its end.
    pub limits: Limits,
    /// The boundary of `limits` as it is written in tokens; `None` where there is none.
    pub resources: Option<Value>,
}

/// What stands behind a caller in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A long-lived credential.
    Credential(CredentialId),
    /// A person's session.
    Session(SessionId),
}

impl Source {
    /// The id.
    pub fn id(&self) -> &str {
        match self {
            Self::Credential(id) => id.as_str(),
            Self::Session(id) => id.as_str(),
        }
    }

    /// The credential, for the audit.
    pub fn credential(&self) -> Option<CredentialId> {
        match self {
            Self::Credential(id) => Some(*id),
            Self::Session(_) => None,
        }
    }
}

impl Principal {
    /// Whether the credential holds the permission. The user's role is asked apart, for the
    /// workspace at hand ([`crate::access`]).
    pub fn allows(&self, permission: Permission) -> bool {
        self.limits.allows(permission)
    }

    /// The permissions that the credential holds.
    pub fn held(&self) -> Permissions {
        self.limits.permissions().unwrap_or(Permissions::all())
    }

    /// When the credential ends.
    pub fn expires_at(&self) -> Option<Timestamp> {
        // An end that no calendar has is further away than any token lives.
        let end = |seconds| Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
        self.limits.expires_at().map(end)
    }
}
