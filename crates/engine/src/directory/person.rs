//! A user who is a member of workspaces, and the permissions of the user's role there.

use std::sync::Arc;

use types::permission::{Permission, Permissions};

/// A user with the fields that the edge needs.
#[derive(Debug)]
pub struct Person {
    /// Id of the user.
    pub id: Arc<str>,
    /// Name that is shown to other users; empty if the user has none.
    pub name: Box<str>,
    /// Unix seconds: browser sessions at tunnels that started earlier have ended.
    pub sessions_after: i64,
    memberships: Box<[(Box<str>, Permissions)]>,
}

impl Person {
    pub(super) fn compile(record: api::link::Person) -> Self {
        let memberships = record.memberships.into_iter().map(|membership| {
            let names = membership.permissions.iter();
            // A permission that this version does not know is ignored.
            let allowed = names.filter_map(|name| name.parse::<Permission>().ok());
            (membership.workspace_id.into(), allowed.collect())
        });
        Self {
            id: record.id.into(),
            name: record.name.into(),
            sessions_after: record.sessions_after,
            memberships: memberships.collect(),
        }
    }

    /// Returns true if the user is a member of the workspace, with any role.
    pub fn is_member(&self, workspace: &str) -> bool {
        self.memberships.iter().any(|(id, _)| **id == *workspace)
    }

    /// Returns true if the user's role in the workspace allows this.
    pub fn allows(&self, workspace: &str, permission: Permission) -> bool {
        self.memberships
            .iter()
            .any(|(id, allowed)| **id == *workspace && allowed.contains(permission))
    }
}
