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
    memberships: Box<[Membership]>,
}

/// Membership in a workspace.
#[derive(Debug)]
struct Membership {
    workspace_id: Box<str>,
    allowed: Permissions,
    role: Option<Box<str>>,
}

impl Person {
    pub(super) fn compile(record: api::link::Person) -> Self {
        let memberships = record.memberships.into_iter().map(|membership| {
            let names = membership.permissions.iter();
            // A permission that this version does not have is ignored.
            let allowed = names.filter_map(|name| name.parse::<Permission>().ok());
            Membership {
                workspace_id: membership.workspace_id.into(),
                allowed: allowed.collect(),
                role: membership.role.map(Into::into),
            }
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
        self.membership(workspace).is_some()
    }

    /// Returns true if the user's role in the workspace allows this.
    pub fn allows(&self, workspace: &str, permission: Permission) -> bool {
        self.membership(workspace)
            .is_some_and(|membership| membership.allowed.contains(permission))
    }

    /// Name of the user's role in the workspace, if the platform states it.
    pub fn role(&self, workspace: &str) -> Option<&str> {
        self.membership(workspace)?.role.as_deref()
    }

    fn membership(&self, workspace: &str) -> Option<&Membership> {
        let mut all = self.memberships.iter();
        all.find(|membership| *membership.workspace_id == *workspace)
    }
}
