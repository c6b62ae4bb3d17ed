//! Roles of members and their permissions.

use std::fmt;
use std::str::FromStr;

use types::permission::{Permission, Permissions};

/// Role of a member. The order is from weak to strong: each role includes all permissions of the
/// lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// May read.
    Viewer,
    /// May work with existing projects.
    Member,
    /// May manage projects, members and credentials.
    Admin,
    /// May manage the workspace itself. A workspace always has an owner.
    Owner,
}

impl Role {
    /// Every role, the weakest first.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Member, Self::Admin, Self::Owner];

    /// Name in the API and the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }

    /// Permissions of the role in the workspace. A credential is limited by its own permissions and
    /// by its owner's role, so a role change affects credentials as well.
    pub fn permissions(self) -> Permissions {
        Permission::ALL
            .iter()
            .copied()
            .filter(|permission| least(*permission) <= self)
            .collect()
    }

    pub fn allows(self, permission: Permission) -> bool {
        least(permission) <= self
    }

    /// True if a member with this role may give, change or remove the role `other`. Admins manage
    /// roles up to admin, and owners manage all.
    pub fn may_manage(self, other: Self) -> bool {
        match self {
            Self::Owner => true,
            Self::Admin => other <= Self::Admin,
            Self::Member | Self::Viewer => false,
        }
    }
}

/// The weakest role that has a permission. The match is exhaustive, so a new permission does not
/// compile without an entry here.
fn least(permission: Permission) -> Role {
    match permission {
        Permission::AccountProjectsReadOnly
        | Permission::AccountPlanReadOnly
        | Permission::AccountWorkspacesReadOnly
        // Minting only restricts the caller's permissions, so it cannot widen access.
        | Permission::AccountTokensCreate
        | Permission::AccountCredentialsReadOnly
        | Permission::NetworkStreamsReadOnly
        | Permission::NetworkEventsReadOnly
        | Permission::NetworkWebhooksReadOnly
        | Permission::NetworkWebttyServersReadOnly
        | Permission::TunnelsResourcesReadOnly
        | Permission::WebttySessionsReadOnly => Role::Viewer,
        // A credential cannot exceed the permissions of its owner.
        Permission::AccountCredentialsReadWrite
        | Permission::TunnelsTunnelsCreateDelete
        | Permission::TunnelsStreamsCreateDelete
        | Permission::WebttySessionsReadWrite
        | Permission::TurnCredentialsCreate
        | Permission::TurnRelayAllocate => Role::Member,
        // A recording shows the input of other users.
        Permission::WebttyLogsReadOnly
        | Permission::AccountProjectsReadWrite
        | Permission::AccountWorkspaceProtectionReadWrite
        | Permission::NetworkWebhooksReadWrite
        | Permission::NetworkWebttyServersReadWrite => Role::Admin,
        // Recordings show the actions of members with many permissions. Few roles may delete them.
        Permission::WebttyLogsReadWrite => Role::Owner,
    }
}

/// Conversions from and to a type with the same roles.
macro_rules! same_roles {
    ($($other:ty)+) => {$(
        impl From<$other> for Role {
            fn from(role: $other) -> Self {
                match role {
                    <$other>::Owner => Self::Owner,
                    <$other>::Admin => Self::Admin,
                    <$other>::Member => Self::Member,
                    <$other>::Viewer => Self::Viewer,
                }
            }
        }

        impl From<Role> for $other {
            fn from(role: Role) -> Self {
                match role {
                    Role::Owner => Self::Owner,
                    Role::Admin => Self::Admin,
                    Role::Member => Self::Member,
                    Role::Viewer => Self::Viewer,
                }
            }
        }
    )+};
}

same_roles! { store::members::Role api::control::workspaces::Role }

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(given: &str) -> Result<Self, UnknownRole> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == given)
            .ok_or(UnknownRole)
    }
}

/// The name is not a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected owner, admin, member or viewer")]
pub struct UnknownRole;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stronger_role_has_all_that_a_weaker_one_has() {
        for pair in Role::ALL.windows(2) {
            assert!(pair[0].permissions().is_subset(pair[1].permissions()));
            assert!(pair[0] < pair[1]);
        }
        assert_eq!(Role::Owner.permissions(), Permissions::all());
        assert!(!Role::Viewer.permissions().is_empty());
    }

    /// A viewer cannot change anything: no permission for writing, creating or deleting. Minting is
    /// the exception, because it only restricts.
    #[test]
    fn a_viewer_has_only_permissions_for_reading() {
        for permission in Role::Viewer.permissions().iter() {
            let name = permission.as_str();
            assert!(
                name.ends_with(".read-only") || permission == Permission::AccountTokensCreate,
                "{name}"
            );
        }
    }

    #[test]
    fn no_role_manages_a_stronger_one() {
        for role in Role::ALL {
            for other in Role::ALL {
                let may = role.may_manage(other);
                assert_eq!(may, role >= Role::Admin && other <= role, "{role} {other}");
            }
        }
    }

    /// `docs/roles.md` has a row for each permission, and what each role may do.
    #[test]
    fn the_documented_table_is_that_of_the_roles() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/roles.md");
        let text = std::fs::read_to_string(path).unwrap();
        let head = "| permission | allows | viewer | member | admin | owner |\n";
        let (_, table) = text.split_once(head).unwrap();
        let rows = table.lines().skip(1);
        let mut documented = Vec::new();
        for row in rows.take_while(|row| row.starts_with('|')) {
            let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
            let permission: Permission = cells[0].trim_matches('`').parse().unwrap();
            let allowed = Role::ALL.map(|role| {
                if role.allows(permission) {
                    "yes"
                } else {
                    "–"
                }
            });
            assert_eq!(cells[2..], allowed, "{row}");
            documented.push(permission);
        }
        for permission in Permission::ALL {
            assert!(documented.contains(permission), "{permission:?}");
        }
        assert_eq!(documented.len(), Permission::ALL.len());
    }

    #[test]
    fn names_round_trip() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert_eq!("Owner".parse::<Role>(), Err(UnknownRole));
    }
}
