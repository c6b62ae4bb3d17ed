//! Limits of issued credentials and tokens. They never exceed those of the issuing caller.
//!
//! Every credential and token that the platform issues is based on a [`Grant`], and only this
//! module creates grants.

use api::control::whoami::CallerKind;
use credentials::check_consistency;
use credentials::limits::both_resources;
use jiff::Timestamp;
use serde_json::Value;
use store::credentials::Credential;
use types::boundary::Boundary;
use types::id::ProjectId;
use types::permission::{Permission, Permissions};
use types::problem::Problem;

use crate::app::App;
use crate::caller::Principal;
use crate::caller::access;
use crate::http_api::problem::HandlerResult;

/// Permissions, boundary and expiry of an issued credential or token.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    permissions: Option<Permissions>,
    resources: Option<Value>,
    expires_at: Option<Timestamp>,
}

/// Limits that a caller requests.
#[derive(Clone, Debug, Default)]
pub struct RequestedLimits {
    /// `None`: every permission of the caller.
    pub permissions: Option<Vec<Permission>>,
    /// `None`: the boundary of the caller.
    pub resources: Option<Value>,
    /// `None`: until the caller's credential expires.
    pub expires_at: Option<Timestamp>,
}

impl Grant {
    /// Limits of a new credential: those that were requested, within those of the caller.
    ///
    /// # Errors
    /// 400 for a boundary of a wrong form, or for permissions without any action inside it; 403 for
    /// permissions that the caller does not have.
    pub fn of_credential(
        who: &Principal,
        requested: RequestedLimits,
        compat: bool,
    ) -> HandlerResult<Self> {
        Self::delegated(who, requested, lifetime_bound(who), compat)
    }

    /// Limits of a new token: those that were requested, within those of the caller. Unlike a
    /// credential, a token ends with the session that it was issued from.
    ///
    /// # Errors
    /// As for [`Self::of_credential`].
    pub fn of_token(
        who: &Principal,
        requested: RequestedLimits,
        compat: bool,
    ) -> HandlerResult<Self> {
        Self::delegated(who, requested, who.expires_at(), compat)
    }

    fn delegated(
        who: &Principal,
        requested: RequestedLimits,
        callers_end: Option<Timestamp>,
        compat: bool,
    ) -> HandlerResult<Self> {
        let asked = requested.permissions.as_deref().unwrap_or_default();
        if let Some(resources) = &requested.resources {
            Boundary::check(resources, compat)?;
            check_consistency(asked, &Boundary::parse(Some(resources), compat))?;
        }
        let set: Permissions = asked.iter().copied().collect();
        require_permissions(who, set)?;
        let resources = both_resources(who.resources.clone(), requested.resources);
        if let Some(both) = &resources {
            // The combination of two valid boundaries can be too large.
            Boundary::check(both, true)?;
            let both = Boundary::parse(Some(both), true);
            if check_consistency(asked, &both).is_err() {
                return Err(Problem::insufficient_scope(set).into());
            }
        }
        let permissions = match requested.permissions {
            Some(_) => Some(set),
            None => who.limits.permissions(),
        };
        Ok(Self {
            permissions,
            resources,
            expires_at: requested.expires_at.into_iter().chain(callers_end).min(),
        })
    }

    /// Limits of an OAuth client: the permissions that it requests, within those of the user's
    /// session (OA-2). A permission that the session's boundary allows nowhere is left out, because
    /// it would appear granted and then be refused. The user's roles are checked with each request.
    /// The expiry is that of the access token, which is set when it is issued.
    pub fn of_oauth_client(who: &Principal, asked: Permissions) -> Self {
        let is_of_use = |permission: &Permission| {
            who.allows(*permission)
                && check_consistency(&[*permission], who.limits.boundary()).is_ok()
        };
        Self {
            permissions: Some(asked.iter().filter(is_of_use).collect()),
            resources: who.resources.clone(),
            expires_at: None,
        }
    }

    /// A user's stored approval for an OAuth client ([`Self::of_oauth_client`]).
    pub(crate) fn approved(
        permissions: Permissions,
        resources: Option<Value>,
        expires_at: Timestamp,
    ) -> Self {
        Self {
            permissions: Some(permissions),
            resources,
            expires_at: Some(expires_at),
        }
    }

    /// Limits of the successor of a credential.
    pub(crate) fn of_successor(old: &Credential) -> Self {
        let parsed = |names: &Vec<String>| names.iter().flat_map(|name| name.parse()).collect();
        Self {
            permissions: old.permissions.as_ref().map(parsed),
            resources: old.resources.clone(),
            expires_at: old.expires_at,
        }
    }

    /// All permissions of a user, for the operator of the installation.
    pub(crate) fn unrestricted(expires_at: Option<Timestamp>) -> Self {
        Self {
            permissions: None,
            resources: None,
            expires_at,
        }
    }

    /// `None` if they are not limited.
    pub fn permissions(&self) -> Option<Permissions> {
        self.permissions
    }

    /// The permissions in stored form.
    pub fn permission_names(&self) -> Option<Vec<String>> {
        let names = |set: Permissions| set.iter().map(|one| one.to_string()).collect();
        self.permissions.map(names)
    }

    /// The permissions. If they are not limited, all permissions.
    pub fn effective_permissions(&self) -> Permissions {
        self.permissions.unwrap_or(Permissions::all())
    }

    /// The boundary; `None` if there is none.
    pub fn resources(&self) -> Option<&Value> {
        self.resources.as_ref()
    }

    /// `None` if there is no expiry.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }
}

/// The latest expiry of a credential that the caller issues. A user in a session has no such limit,
/// because the user is present and decides.
pub fn lifetime_bound(who: &Principal) -> Option<Timestamp> {
    match who.kind {
        CallerKind::Session => None,
        CallerKind::Pat | CallerKind::App | CallerKind::Auth => who.expires_at(),
    }
}

/// Refuses to return a stored credential or a replacement secret to a caller with fewer
/// permissions.
///
/// # Errors
/// 403 `insufficient_scope`.
pub fn require_covers(who: &Principal, credential: &Credential) -> HandlerResult<()> {
    let refused = || Problem::insufficient_scope(Permission::AccountCredentialsReadWrite);
    match &credential.permissions {
        None if who.limits.permissions().is_some() => return Err(refused().into()),
        None => {}
        Some(names) => {
            let held = names.iter().flat_map(|name| name.parse()).collect();
            require_permissions(who, held)?;
        }
    }
    if who.resources.is_some() && who.resources != credential.resources {
        return Err(refused().into());
    }
    let outlives = |end: Timestamp| credential.expires_at.is_none_or(|own| own > end);
    if lifetime_bound(who).is_some_and(outlives) {
        return Err(refused().into());
    }
    Ok(())
}

/// Refuses to delegate access to suspended projects only: boundaries that name projects, none of
/// which may be used. Boundaries of other forms are checked where they are used.
///
/// # Errors
/// 409 `project_suspended`.
pub async fn refuse_suspended(app: &App, resources: [Option<&Value>; 2]) -> HandlerResult<()> {
    let leaves = resources.into_iter().flatten().flat_map(leaves);
    let targets: Vec<_> = leaves.filter_map(only_projects).collect();
    if targets.is_empty() {
        return Ok(());
    }
    let mut read = app.store.read().await?;
    for projects in targets {
        if store::projects::are_suspended(&mut read, &projects).await? {
            return Err(access::project_suspended().with_field("resources").into());
        }
    }
    Ok(())
}

/// The boundaries that apply together: a single one, or those of an `AND`.
fn leaves(resources: &Value) -> impl Iterator<Item = &Value> {
    let tunnels = resources.get("tunnels");
    let branches = tunnels.and_then(|tunnels| tunnels.get("AND")?.as_array());
    let branches = branches.into_iter().flatten().take(MAX_LEAVES);
    tunnels.into_iter().chain(branches)
}

/// The projects that a boundary names, if it allows nothing else.
fn only_projects(leaf: &Value) -> Option<Vec<ProjectId>> {
    let names = leaf.get("projects")?.as_array()?;
    let ids = names.iter().take(MAX_TARGETS);
    let ids: Vec<_> = ids.filter_map(|name| name.as_str()?.parse().ok()).collect();
    (!ids.is_empty() && ids.len() == names.len()).then_some(ids)
}

/// Maximum number of boundaries to check, because each one costs two queries. Real boundaries have
/// only a few parts.
const MAX_LEAVES: usize = 8;
/// Maximum number of projects to check. A boundary with more is not aimed at suspended projects.
const MAX_TARGETS: usize = 100;

/// Refuses permissions that the caller does not have. `scope` names the missing ones.
pub fn require_permissions(who: &Principal, asked: Permissions) -> HandlerResult<()> {
    let missing: Permissions = asked
        .iter()
        .filter(|permission| !who.allows(*permission))
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Problem::insufficient_scope(missing).into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_number_of_checked_leaves_and_targets_is_limited() {
        let checked = |count: usize| {
            let resources = json!({"tunnels": {"AND": vec![json!({}); count]}});
            leaves(&resources).count()
        };
        // Includes the whole boundary, which is checked as well.
        assert_eq!((checked(8), checked(9), checked(1000)), (9, 9, 9));

        let named = |count: u8| {
            let ids = (0..count).map(|number| ProjectId::new(1, [number; 10]).to_string());
            only_projects(&json!({"projects": ids.collect::<Vec<_>>()}))
        };
        assert_eq!(named(100).map(|ids| ids.len()), Some(100));
        assert_eq!(named(101), None, "it does not aim at one");
    }
}
