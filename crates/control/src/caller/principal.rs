//! A caller after verification of its credential.

use api::control::whoami::CallerKind;
use credentials::Limits;
use jiff::Timestamp;
use serde_json::Value;
use store::users::User;
use types::id::{CredentialId, SessionId};
use types::permission::{Permission, Permissions};

/// A verified caller. It acts for a user, within the permissions and the boundary of its credential
/// and within that user's roles.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Kind of the credential.
    pub kind: CallerKind,
    /// The user for whom it acts: the owner of the credential. The user was active when this was
    /// checked.
    pub user: User,
    /// The stored object behind the credential. Tokens minted from it become invalid with it.
    pub source: Source,
    /// The first credential of the issuing chain; `None` for a session.
    pub root: Option<CredentialId>,
    /// Time of the last change of the source.
    pub source_updated_at: Timestamp,
    /// Its permissions, its boundary and its expiry.
    pub limits: Limits,
    /// The boundary of `limits` in the form of tokens; `None` if there is none.
    pub resources: Option<Value>,
}

/// The stored object behind a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A long-lived credential.
    Credential(CredentialId),
    /// A user's session.
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

    /// The credential, for the audit log.
    pub fn credential(&self) -> Option<CredentialId> {
        match self {
            Self::Credential(id) => Some(*id),
            Self::Session(_) => None,
        }
    }
}

impl Principal {
    /// True if the credential has the permission. The user's role is checked separately for each
    /// workspace ([`crate::caller::access`]).
    pub fn allows(&self, permission: Permission) -> bool {
        self.limits.allows(permission)
    }

    /// The permissions of the credential.
    pub fn permissions(&self) -> Permissions {
        self.limits.permissions().unwrap_or(Permissions::all())
    }

    /// Expiry of the credential.
    pub fn expires_at(&self) -> Option<Timestamp> {
        // A time beyond the calendar's range is later than any token's expiry.
        let end = |seconds| Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
        self.limits.expires_at().map(end)
    }
}
