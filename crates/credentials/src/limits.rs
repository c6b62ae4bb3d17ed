//! The limits of a token, a credential or a session: its permissions, its boundary, and its expiry.
//!
//! A token has its own limits and those of each credential in its chain. [`Limits::and`] is the
//! only function that intersects such limits: the fields are private, so no caller can combine
//! permissions and omit the boundary or the expiry.

#[cfg(test)]
mod tests;

use serde_json::{Value, json};
use types::boundary::Boundary;
use types::permission::{Permission, Permissions};

/// Limits of a token, a credential or a session.
#[derive(Clone, Debug)]
pub struct Limits {
    permissions: Option<Permissions>,
    boundary: Boundary,
    expires_at: Option<i64>,
}

impl Limits {
    /// Every permission, no boundary, no expiry.
    pub fn none() -> Self {
        Self::new(None, Boundary::none(), None)
    }

    /// The limits in a token's own claims. `None` stands for every permission and for no expiry;
    /// `expires_at` is in Unix seconds.
    pub fn new(
        permissions: Option<Permissions>,
        boundary: Boundary,
        expires_at: Option<i64>,
    ) -> Self {
        Self {
            permissions,
            boundary,
            expires_at,
        }
    }

    /// The limits of a stored credential or session. An unknown permission grants nothing; an
    /// invalid boundary refuses everything.
    pub fn of_stored<Name: AsRef<str>>(
        permissions: Option<&[Name]>,
        resources: Option<&Value>,
        workspace: Option<&str>,
        expires_at: Option<i64>,
    ) -> Self {
        let permissions = permissions.map(|names| {
            let known = names.iter().flat_map(|name| name.as_ref().parse());
            known.collect::<Permissions>()
        });
        let within = |resources| Boundary::parse(resources, true);
        let workspace = workspace.map(workspace_resources);
        Self {
            permissions,
            boundary: within(resources).and(&within(workspace.as_ref())),
            expires_at,
        }
    }

    /// The permissions and boundary that both allow, until the earlier expiry.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            permissions: match (self.permissions, other.permissions) {
                (Some(one), Some(other)) => Some(one.intersection(other)),
                (one, other) => one.or(other),
            },
            boundary: self.boundary.and(&other.boundary),
            expires_at: earlier(self.expires_at, other.expires_at),
        }
    }

    /// The permissions, if they are limited.
    pub fn permissions(&self) -> Option<Permissions> {
        self.permissions
    }

    /// The boundary.
    pub fn boundary(&self) -> &Boundary {
        &self.boundary
    }

    /// Expiry in Unix seconds.
    pub fn expires_at(&self) -> Option<i64> {
        self.expires_at
    }

    /// True if this permission is granted.
    pub fn allows(&self, permission: Permission) -> bool {
        self.permissions
            .is_none_or(|held| held.contains(permission))
    }

    /// True if it has no permission that `other` lacks.
    pub fn permissions_are_within(&self, other: &Self) -> bool {
        match (self.permissions, other.permissions) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(other)) => own.is_subset(other),
        }
    }

    /// True if it has expired at `now` (Unix seconds).
    pub fn is_expired(&self, now: i64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// True if it is valid for longer than `other`.
    pub fn outlives(&self, other: &Self) -> bool {
        let ends_later = |end| self.expires_at.is_none_or(|own| own > end);
        other.expires_at.is_some_and(ends_later)
    }
}

/// The earlier of two expiries; `None` means no expiry.
fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.into_iter().chain(other).min()
}

/// The `resources` claim that limits a token to one workspace.
pub fn workspace_resources(workspace: &str) -> Value {
    json!({"tunnels": {"workspaces": [workspace]}})
}

/// The `resources` claim that allows the intersection of two claims: the serialised form of
/// [`Boundary::and`].
pub fn both_resources(one: Option<Value>, other: Option<Value>) -> Option<Value> {
    match (one, other) {
        (Some(one), Some(other)) if one == other => Some(one),
        (Some(one), Some(other)) => {
            let branches = [one, other].map(|resources| resources.get("tunnels").cloned());
            Some(json!({"tunnels": {"AND": branches}}))
        }
        (one, other) => one.or(other),
    }
}
