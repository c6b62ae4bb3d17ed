//! Permissions: the table behind every check, document and scope list.
//!
//! Names are exact: `read-write` does not imply `read-only`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Actions that a permission allows on one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Resource, for example `engine.tunnels`.
    pub resource: &'static str,
    /// Actions on it.
    pub actions: &'static [&'static str],
}

const fn rule(resource: &'static str, actions: &'static [&'static str]) -> Rule {
    Rule { resource, actions }
}

macro_rules! permissions {
    ($($variant:ident $name:literal $description:literal [$($resource:literal: $($action:literal)+),+])+) => {
        /// One permission of a credential; also an OAuth scope of the same name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Permission {
            $(#[doc = $description] $variant),+
        }

        impl Permission {
            /// Every permission.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Name in tokens, scopes and documents.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Display text of one sentence.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$variant => $description),+ }
            }

            /// Allowed actions, for `x-svc-permissions` and `x-svc-required-rules`.
            pub const fn rules(self) -> &'static [Rule] {
                match self { $(Self::$variant => const { &[$(rule($resource, &[$($action),+])),+] }),+ }
            }
        }

        impl FromStr for Permission {
            type Err = UnknownPermission;

            fn from_str(given: &str) -> Result<Self, UnknownPermission> {
                match given {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(UnknownPermission),
                }
            }
        }
    };
}

permissions! {
    AccountProjectsReadOnly "account.projects.read-only"
        "List, select and resolve tunnel projects." ["projects": "read"]
    AccountProjectsReadWrite "account.projects.read-write"
        "Create, update, transfer and delete tunnel projects."
        ["projects": "create" "update" "transfer" "delete", "settings": "read" "write"]
    AccountPlanReadOnly "account.plan.read-only"
        "Read project creation options, plans, usage and TURN usage." ["plan": "read", "usage": "read"]
    AccountWorkspacesReadOnly "account.workspaces.read-only"
        "List workspaces and their members." ["workspaces": "read"]
    AccountWorkspaceProtectionReadWrite "account.workspace-protection.read-write"
        "Manage workspaces, their members and their protection." ["workspaces": "write", "audit": "read"]
    AccountTokensCreate "account.tokens.create"
        "Mint short-lived delegated tokens." ["tokens": "create"]
    AccountCredentialsReadOnly "account.credentials.read-only"
        "List long-lived credentials." ["credentials": "read"]
    AccountCredentialsReadWrite "account.credentials.read-write"
        "Issue, rotate, revoke and manage long-lived credentials." ["credentials": "create" "update" "delete"]
    NetworkStreamsReadOnly "network.streams.read-only"
        "Read hosted request and connection logs." ["logs": "read"]
    NetworkEventsReadOnly "network.events.read-only"
        "Read stored events." ["events": "read"]
    NetworkWebhooksReadOnly "network.webhooks.read-only"
        "Read webhooks and their deliveries." ["webhooks": "read"]
    NetworkWebhooksReadWrite "network.webhooks.read-write"
        "Manage webhooks." ["webhooks": "create" "update" "delete"]
    NetworkWebttyServersReadOnly "network.webtty-servers.read-only"
        "Read registered WebTTY servers." ["webttyServers": "read"]
    NetworkWebttyServersReadWrite "network.webtty-servers.read-write"
        "Register and manage WebTTY servers." ["webttyServers": "create" "update" "delete"]
    TunnelsResourcesReadOnly "tunnels.resources.read-only"
        "Read active clients, active tunnels and live events."
        ["engine.tunnels": "read", "engine.streams": "read"]
    TunnelsTunnelsCreateDelete "tunnels.tunnels.create-delete"
        "Create and close tunnels." ["engine.tunnels": "create" "delete"]
    TunnelsStreamsCreateDelete "tunnels.streams.create-delete"
        "Dial private tunnels; open and close tunnel streams." ["engine.streams": "create" "delete"]
    WebttySessionsReadOnly "webtty.sessions.read-only"
        "Join managed WebTTY sessions as a spectator." ["engine.webtty.sessions": "read"]
    WebttySessionsReadWrite "webtty.sessions.read-write"
        "Join managed WebTTY sessions and request control." ["engine.webtty.sessions": "read" "write"]
    WebttyLogsReadOnly "webtty.logs.read-only"
        "Read recordings of managed WebTTY sessions."
        ["engine.webtty.sessions": "read", "engine.webtty.logs": "read"]
    WebttyLogsReadWrite "webtty.logs.read-write"
        "Delete recordings of managed WebTTY sessions." ["engine.webtty.logs": "delete"]
    TurnCredentialsCreate "turn.credentials.create"
        "Create managed TURN credentials." ["turnCredentials": "create"]
    TurnRelayAllocate "turn.relay.allocate"
        "Allocate TURN relay sessions." ["turn.relay": "allocate"]
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Permission {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Permission {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        given.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Permission {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::Type::String)
            .description(Some("The name of a permission."))
            .enum_values(Some(Self::ALL.iter().map(|permission| permission.as_str())))
            .into()
    }
}

impl utoipa::ToSchema for Permission {}

/// An unknown permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown permission")]
pub struct UnknownPermission;

/// A set of permissions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Permissions(u32);

impl Permissions {
    /// No permission.
    pub const NONE: Self = Self(0);

    /// Every permission.
    pub const fn all() -> Self {
        Self((1 << Permission::ALL.len()) - 1)
    }

    /// True if the set contains the permission.
    pub const fn contains(self, permission: Permission) -> bool {
        self.0 & bit(permission) != 0
    }

    /// Returns the set with the permission added.
    #[must_use]
    pub const fn with(self, permission: Permission) -> Self {
        Self(self.0 | bit(permission))
    }

    /// Returns the intersection of both sets. A delegated token never has more permissions than its
    /// parent.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// True if `other` contains every permission of this set.
    pub const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// True if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The permissions, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL
            .iter()
            .copied()
            .filter(move |permission| self.contains(*permission))
    }
}

const fn bit(permission: Permission) -> u32 {
    1 << permission as u32
}

impl FromIterator<Permission> for Permissions {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Self {
        permissions.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(Permission::as_str))
            .finish()
    }
}

/// Writes the names with spaces between them, as in an OAuth `scope` (RFC 6749 section 3.3).
impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, permission) in self.iter().enumerate() {
            let gap = if place == 0 { "" } else { " " };
            write!(f, "{gap}{permission}")?;
        }
        Ok(())
    }
}

impl Serialize for Permissions {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// A small set of permissions for a common task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Key in `x-svc-use-case-permissions`.
    pub name: &'static str,
    /// The task, as display text.
    pub title: &'static str,
    /// Permissions that the task needs.
    pub permissions: &'static [Permission],
}

/// Bundles of the engine document.
pub const ENGINE_BUNDLES: &[Bundle] = {
    use Permission::{
        TunnelsResourcesReadOnly, TunnelsStreamsCreateDelete, TunnelsTunnelsCreateDelete,
        WebttyLogsReadOnly, WebttySessionsReadOnly, WebttySessionsReadWrite,
    };
    &[
        Bundle {
            name: "inspect-engine-state",
            title: "Follow live tunnels and clients",
            permissions: &[TunnelsResourcesReadOnly],
        },
        Bundle {
            name: "expose-service-from-cli",
            title: "Open a tunnel and follow live state",
            permissions: &[TunnelsResourcesReadOnly, TunnelsTunnelsCreateDelete],
        },
        Bundle {
            name: "connect-private-tunnel",
            title: "Connect to private tunnels",
            permissions: &[TunnelsResourcesReadOnly, TunnelsStreamsCreateDelete],
        },
        Bundle {
            name: "run-tunnel-webtty",
            title: "Run a terminal through a tunnel",
            permissions: &[
                TunnelsResourcesReadOnly,
                TunnelsTunnelsCreateDelete,
                TunnelsStreamsCreateDelete,
            ],
        },
        Bundle {
            name: "join-managed-webtty",
            title: "Watch terminal sessions",
            permissions: &[
                TunnelsResourcesReadOnly,
                TunnelsStreamsCreateDelete,
                WebttySessionsReadOnly,
            ],
        },
        Bundle {
            name: "control-managed-webtty",
            title: "Take part in terminal sessions",
            permissions: &[
                TunnelsResourcesReadOnly,
                TunnelsStreamsCreateDelete,
                WebttySessionsReadWrite,
            ],
        },
        Bundle {
            name: "read-managed-webtty-recordings",
            title: "Read recordings of terminal sessions",
            permissions: &[WebttyLogsReadOnly],
        },
    ]
};

/// Bundles of the control plane document: the scope bundles of the interface (CP-14). No bundle
/// requests token or credential management.
pub const CONTROL_PLANE_BUNDLES: &[Bundle] = {
    use Permission::{
        AccountPlanReadOnly, AccountProjectsReadOnly, AccountProjectsReadWrite,
        NetworkStreamsReadOnly, TunnelsResourcesReadOnly, TunnelsStreamsCreateDelete,
        TunnelsTunnelsCreateDelete,
    };
    &[
        Bundle {
            name: "create-project-and-expose-service",
            title: "Create or select a project, open a tunnel, follow live state, read logs",
            permissions: &[
                AccountProjectsReadWrite,
                AccountProjectsReadOnly,
                AccountPlanReadOnly,
                NetworkStreamsReadOnly,
                TunnelsResourcesReadOnly,
                TunnelsTunnelsCreateDelete,
                TunnelsStreamsCreateDelete,
            ],
        },
        Bundle {
            name: "expose-service-in-project",
            title: "Use an existing project and open a tunnel",
            permissions: &[
                AccountProjectsReadOnly,
                TunnelsResourcesReadOnly,
                TunnelsTunnelsCreateDelete,
            ],
        },
        Bundle {
            name: "connect-private-tunnel",
            title: "Connect to private tunnels",
            permissions: &[
                AccountProjectsReadOnly,
                TunnelsResourcesReadOnly,
                TunnelsStreamsCreateDelete,
            ],
        },
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sets_round_trip() {
        for permission in Permission::ALL {
            assert_eq!(permission.as_str().parse(), Ok(*permission));
            assert!(!permission.rules().is_empty() && permission.description().ends_with('.'));
        }
        let all: Permissions = Permission::ALL.iter().copied().collect();
        assert_eq!(all, Permissions::all());
        assert_eq!(all.iter().count(), Permission::ALL.len());
        assert!("tunnels.resources".parse::<Permission>().is_err());
    }

    #[test]
    fn read_write_does_not_imply_read_only() {
        let set = Permissions::NONE.with(Permission::WebttySessionsReadWrite);
        assert!(!set.contains(Permission::WebttySessionsReadOnly));
        assert!(set.is_subset(Permissions::all()) && !Permissions::all().is_subset(set));
        assert_eq!(set.intersection(Permissions::NONE), Permissions::NONE);
    }

    #[test]
    fn sets_are_written_as_scopes() {
        let set = Permissions::NONE
            .with(Permission::TunnelsStreamsCreateDelete)
            .with(Permission::TunnelsResourcesReadOnly);
        assert_eq!(
            set.to_string(),
            "tunnels.resources.read-only tunnels.streams.create-delete"
        );
    }

    /// CP-14: no bundle includes permissions that only the user may request.
    #[test]
    fn no_bundle_manages_tokens_or_credentials() {
        for bundle in ENGINE_BUNDLES.iter().chain(CONTROL_PLANE_BUNDLES) {
            for permission in bundle.permissions {
                let name = permission.as_str();
                assert!(
                    !name.starts_with("account.tokens") && !name.starts_with("account.credentials"),
                    "{name}"
                );
            }
        }
    }
}
