//! What is known of a caller once its credential was verified.

use api::control::whoami::CallerKind;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::users::User;
use types::boundary::Boundary;
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
    /// Permissions; `None` is not narrowed.
    pub permissions: Option<Permissions>,
    /// Where it reaches.
    pub boundary: Boundary,
    /// `boundary` as it was written; `None` where there is none.
    pub resources: Option<Value>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
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
        self.permissions
            .is_none_or(|held| held.contains(permission))
    }

    /// The permissions that the credential holds.
    pub fn held(&self) -> Permissions {
        self.permissions.unwrap_or(Permissions::all())
    }
}

/// Permissions that both allow; `None` is not narrowed.
pub(crate) fn both_permissions(
    one: Option<Permissions>,
    other: Option<Permissions>,
) -> Option<Permissions> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.intersection(other)),
        (one, other) => one.or(other),
    }
}

/// The `resources` that say what two of them say together.
pub(crate) fn both_resources(one: Option<Value>, other: Option<Value>) -> Option<Value> {
    match (one, other) {
        (Some(one), Some(other)) if one == other => Some(one),
        (Some(one), Some(other)) => {
            let branches = [one, other].map(|resources| resources.get("tunnels").cloned());
            Some(json!({"tunnels": {"AND": branches}}))
        }
        (one, other) => one.or(other),
    }
}
