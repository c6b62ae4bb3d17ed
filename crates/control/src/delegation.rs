//! What a caller may hand on: never more than it holds itself.

use credentials::check_consistency;
use serde_json::Value;
use types::boundary::Boundary;
use types::id::ProjectId;
use types::permission::{Permission, Permissions};
use types::problem::Problem;

use crate::access;
use crate::app::App;
use crate::caller::{Principal, both_resources};
use crate::problem::Answer;

/// Permissions and boundaries that may be handed on.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// `None` is not narrowed.
    pub permissions: Option<Vec<Permission>>,
    /// `None`: no boundary.
    pub resources: Option<Value>,
}

/// What the caller asks to hand on, within what it holds: the boundaries of both hold.
///
/// # Errors
/// 400 for a boundary of a wrong shape, or permissions that it gives no action to; 403 for what
/// the caller does not hold.
pub fn grant(
    who: &Principal,
    permissions: Option<Vec<Permission>>,
    resources: Option<Value>,
    compat: bool,
) -> Answer<Grant> {
    let asked = permissions.as_deref().unwrap_or_default();
    if let Some(resources) = &resources {
        Boundary::check(resources, compat)?;
        check_consistency(asked, &Boundary::parse(Some(resources), compat))?;
    }
    let set: Permissions = asked.iter().copied().collect();
    require_held(who, set)?;
    let resources = both_resources(who.resources.clone(), resources);
    if let Some(both) = &resources {
        // Two boundaries of a good shape can be too large together.
        Boundary::check(both, true)?;
        let both = Boundary::parse(Some(both), true);
        if check_consistency(asked, &both).is_err() {
            return Err(Problem::insufficient_scope(set).into());
        }
    }
    Ok(Grant {
        permissions: match (permissions, who.permissions) {
            (Some(_), _) => Some(set.iter().collect()),
            (None, Some(held)) => Some(held.iter().collect()),
            (None, None) => None,
        },
        resources,
    })
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
