//! What is known of a caller once its credential was verified.

use api::control::whoami::CallerKind;
use jiff::Timestamp;
use serde_json::Value;
use types::boundary::Boundary;
use types::permission::{Permission, Permissions};

/// A verified caller. It acts for a user, within the permissions and boundaries of its credential
/// and within that user's roles.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Kind of the credential.
    pub kind: CallerKind,
    /// The user for whom it acts: of a credential, its owner.
    pub user_id: String,
    /// The stored thing behind the credential; what is minted from it dies with it.
    pub source: Source,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A long-lived credential, by id.
    Credential(String),
    /// A person's session, by id.
    Session(String),
}

impl Source {
    /// The id.
    pub fn id(&self) -> &str {
        match self {
            Self::Credential(id) | Self::Session(id) => id,
        }
    }
}

impl Principal {
    /// Whether the credential holds the permission. The user's role is asked apart, for the
    /// workspace at hand.
    pub fn allows(&self, permission: Permission) -> bool {
        self.permissions
            .is_none_or(|held| held.contains(permission))
    }
}
