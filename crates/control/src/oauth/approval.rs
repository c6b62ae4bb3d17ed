//! What a person in a session can hand to a client.

use credentials::check_consistency;
use serde_json::Value;
use types::permission::Permissions;

use crate::people::session::SignedIn;

/// What a client gets: never more than it asked for, nor than the session has (OA-2). What the
/// person's roles allow is asked with each request, as for everything that acts for a person.
#[derive(Clone, Debug)]
pub(super) struct Approval {
    pub(super) permissions: Permissions,
    /// The boundary of the session.
    pub(super) resources: Option<Value>,
}

impl Approval {
    /// What the session can give of what was asked for. A permission whose action its boundary
    /// allows nowhere would look granted and be refused, so it is left out.
    pub(super) fn within(who: &SignedIn, asked: Permissions) -> Self {
        let principal = who.principal();
        let permissions = asked
            .iter()
            .filter(|permission| {
                principal.allows(*permission)
                    && check_consistency(&[*permission], &principal.boundary).is_ok()
            })
            .collect();
        Self {
            permissions,
            resources: principal.resources,
        }
    }

    /// The permissions as they are stored.
    pub(super) fn names(&self) -> Vec<String> {
        self.permissions
            .iter()
            .map(|permission| permission.to_string())
            .collect()
    }
}
