//! Somebody who has a part in workspaces, and what the role there allows.

use std::sync::Arc;

use types::permission::{Permission, Permissions};

/// A person, as the edge needs to know it.
#[derive(Debug)]
pub struct Person {
    /// Id of the user.
    pub id: Arc<str>,
    /// What others are shown; nothing where the person gave no name.
    pub name: Box<str>,
    /// Unix seconds: browser sessions at tunnels that began before are over.
    pub sessions_after: i64,
    memberships: Box<[(Box<str>, Permissions)]>,
}

impl Person {
    pub(super) fn compile(told: api::link::Person) -> Self {
        let memberships = told.memberships.into_iter().map(|membership| {
            let names = membership.permissions.iter();
            // A name that is not known here gives nothing.
            let allowed = names.filter_map(|name| name.parse::<Permission>().ok());
            (membership.workspace_id.into(), allowed.collect())
        });
        Self {
            id: told.id.into(),
            name: told.name.into(),
            sessions_after: told.sessions_after,
            memberships: memberships.collect(),
        }
    }

    /// Whether the person has a part in the workspace, in whatever role.
    pub fn is_member(&self, workspace: &str) -> bool {
        self.memberships.iter().any(|(id, _)| **id == *workspace)
    }

    /// Whether the person's role in the workspace allows this.
    pub fn allows(&self, workspace: &str, permission: Permission) -> bool {
        self.memberships
            .iter()
            .any(|(id, allowed)| **id == *workspace && allowed.contains(permission))
    }
}
