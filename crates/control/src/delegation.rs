//! The limits of what is issued: never more than those of the caller that issues it.
//!
//! Every credential and token that the platform issues is made of a [`Grant`], and only this module
//! makes one.

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

use crate::access;
use crate::app::App;
use crate::caller::Principal;
use crate::problem::Answer;

/// Permissions, boundary and end of what is issued.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    permissions: Option<Permissions>,
    resources: Option<Value>,
    expires_at: Option<Timestamp>,
}

/// Limits that a caller asks for.
#[derive(Clone, Debug, Default)]
pub struct RequestedLimits {
    /// `None`: every permission of the caller.
    pub permissions: Option<Vec<Permission>>,
    /// `None`: the boundary of the caller.
    pub resources: Option<Value>,
    /// `None`: until the end of the caller's credential.
    pub expires_at: Option<Timestamp>,
}

impl Grant {
    /// A credential with the requested limits, within those of the caller.
    ///
    /// # Errors
    /// 400 for a boundary of a wrong shape, or permissions that it gives no action to; 403 for
    /// permissions that the caller does not hold.
    pub fn of_credential(
        who: &Principal,
        requested: RequestedLimits,
        compat: bool,
    ) -> Answer<Self> {
        Self::within(who, requested, lifetime_bound(who), compat)
    }

    /// A token with the requested limits, within those of the caller. Unlike a credential, it ends
    /// with the session that it is issued from.
    ///
    /// # Errors
    /// As for [`Self::of_credential`].
    pub fn of_token(who: &Principal, requested: RequestedLimits, compat: bool) -> Answer<Self> {
        Self::within(who, requested, who.expires_at(), compat)
    }

    fn within(
        who: &Principal,
        requested: RequestedLimits,
        callers_end: Option<Timestamp>,
        compat: bool,
    ) -> Answer<Self> {
        let asked = requested.permissions.as_deref().unwrap_or_default();
        if let Some(resources) = &requested.resources {
            Boundary::check(resources, compat)?;
            check_consistency(asked, &Boundary::parse(Some(resources), compat))?;
        }
        let set: Permissions = asked.iter().copied().collect();
        require_held(who, set)?;
        let resources = both_resources(who.resources.clone(), requested.resources);
        if let Some(both) = &resources {
            // Two boundaries of a good shape can be too large together.
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

    /// The limits of an OAuth client within the permissions that it asks for: never more than the person's
    /// session has (OA-2). A permission whose action the boundary of the session allows nowhere would
    /// look granted and be refused, so it is left out. The person's roles are judged with each request.
    /// The end is that of the access token, which is set when it is issued.
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

    /// The stored approval of a person for an OAuth client ([`Self::of_oauth_client`]).
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

    /// The limits of a credential, for the one that replaces it.
    pub(crate) fn of_successor(old: &Credential) -> Self {
        let parsed = |names: &Vec<String>| names.iter().flat_map(|name| name.parse()).collect();
        Self {
            permissions: old.permissions.as_ref().map(parsed),
            resources: old.resources.clone(),
            expires_at: old.expires_at,
        }
    }

    /// Everything that a person may do, for the operator of the installation.
    pub(crate) fn everything(expires_at: Option<Timestamp>) -> Self {
        Self {
            permissions: None,
            resources: None,
            expires_at,
        }
    }

    /// `None` is not limited.
    pub fn permissions(&self) -> Option<Permissions> {
        self.permissions
    }

    /// The permissions as they are stored.
    pub fn permission_names(&self) -> Option<Vec<String>> {
        let names = |set: Permissions| set.iter().map(|one| one.to_string()).collect();
        self.permissions.map(names)
    }

    /// The permissions, which are all where they are not limited.
    pub fn held(&self) -> Permissions {
        self.permissions.unwrap_or(Permissions::all())
    }

    /// The boundary; `None` where there is none.
    pub fn resources(&self) -> Option<&Value> {
        self.resources.as_ref()
    }

    /// `None`: no end.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }
}

/// The time that a credential issued by the caller must not outlive. A person in a session is there,
/// and decides anew.
pub fn lifetime_bound(who: &Principal) -> Option<Timestamp> {
    match who.kind {
        CallerKind::Session => None,
        CallerKind::Pat | CallerKind::App | CallerKind::Auth => who.expires_at(),
    }
}

/// Refuses to hand a stored credential, or a secret in its place, to a caller that holds less.
///
/// # Errors
/// 403 `insufficient_scope`.
pub fn require_no_more(who: &Principal, credential: &Credential) -> Answer<()> {
    let refused = || Problem::insufficient_scope(Permission::AccountCredentialsReadWrite);
    match &credential.permissions {
        None if who.limits.permissions().is_some() => return Err(refused().into()),
        None => {}
        Some(names) => {
            let held = names.iter().flat_map(|name| name.parse()).collect();
            require_held(who, held)?;
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

/// Refuses to hand on what would reach suspended projects alone: boundaries that name projects,
/// of which none may be used. Boundaries of other forms are judged where they are used.
///
/// # Errors
/// 409 `project_suspended`.
pub async fn refuse_suspended(app: &App, resources: [Option<&Value>; 2]) -> Answer<()> {
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

/// The boundaries that all hold: the one, or those of an `AND`.
fn leaves(resources: &Value) -> impl Iterator<Item = &Value> {
    let tunnels = resources.get("tunnels");
    let branches = tunnels.and_then(|tunnels| tunnels.get("AND")?.as_array());
    let branches = branches.into_iter().flatten().take(MAX_LEAVES);
    tunnels.into_iter().chain(branches)
}

/// The projects that a boundary names, where they are all that it reaches.
fn only_projects(leaf: &Value) -> Option<Vec<ProjectId>> {
    let names = leaf.get("projects")?.as_array()?;
    let ids = names.iter().take(MAX_TARGETS);
    let ids: Vec<_> = ids.filter_map(|name| name.as_str()?.parse().ok()).collect();
    (!ids.is_empty() && ids.len() == names.len()).then_some(ids)
}

/// Each one costs two queries; a boundary is written by a person or made of a few.
const MAX_LEAVES: usize = 8;
/// Whoever names more than this many projects does not aim at one.
const MAX_TARGETS: usize = 100;

/// Refuses permissions that the caller does not hold; `scope` names those that are missing.
pub fn require_held(who: &Principal, asked: Permissions) -> Answer<()> {
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
    fn so_many_leaves_and_targets_are_looked_at() {
        let looked_at = |count: usize| {
            let resources = json!({"tunnels": {"AND": vec![json!({}); count]}});
            leaves(&resources).count()
        };
        // With the whole, which is looked at as well.
        assert_eq!((looked_at(8), looked_at(9), looked_at(1000)), (9, 9, 9));

        let named = |count: u8| {
            let ids = (0..count).map(|number| ProjectId::new(1, [number; 10]).to_string());
            only_projects(&json!({"projects": ids.collect::<Vec<_>>()}))
        };
        assert_eq!(named(100).map(|ids| ids.len()), Some(100));
        assert_eq!(named(101), None, "it does not aim at one");
    }
}
