//! What a caller may hand on: never more than it holds itself.

use credentials::check_consistency;
use serde_json::Value;
use types::boundary::Boundary;
use types::permission::{Permission, Permissions};
use types::problem::Problem;

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
