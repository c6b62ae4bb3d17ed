//! Checks the actions that the token of an agent, a dialling client or a reader allows (EN-7).
//! [`super::Tenancy::require`] checks if it has a permission in a project at all.

use credentials::VerifiedToken;
use types::permission::Permission;
use types::problem::Problem;
use types::tunnel::{Tunnel, TunnelProperties};

use crate::directory::Project;

/// The missing authorization: permission, membership in the project and boundary must all allow an
/// action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BoundaryDenial {
    #[error("the token lacks the permission {}", .0.as_str())]
    Permission(Permission),
    /// The owner of the token is not a member of the project's workspace, or has a role that does
    /// not allow it.
    #[error("the owner of the token may not do this in this project")]
    NotMember(Permission),
    /// The project is suspended for all users.
    #[error("the project is suspended")]
    Suspended,
    /// The boundary does not allow it. `field` is the property that caused this, if there is one.
    #[error("outside the boundary of the token{}", in_field(.field.as_deref()))]
    Boundary {
        permission: Permission,
        field: Option<String>,
    },
}

impl BoundaryDenial {
    fn outside(permission: Permission, field: Option<String>) -> Self {
        Self::Boundary { permission, field }
    }
}

impl From<BoundaryDenial> for Problem {
    fn from(denied: BoundaryDenial) -> Self {
        let detail = denied.to_string();
        match denied {
            BoundaryDenial::Permission(permission) | BoundaryDenial::NotMember(permission) => {
                Self::insufficient_scope(permission).with_detail(detail)
            }
            BoundaryDenial::Suspended => {
                Self::new(403, "project_suspended", "This project is suspended.")
            }
            BoundaryDenial::Boundary { permission, field } => {
                let problem = Self::insufficient_scope(permission).with_detail(detail);
                match field {
                    Some(field) => problem.with_field(field),
                    None => problem,
                }
            }
        }
    }
}

/// Checks that the token's boundary includes this tunnel. It sets properties that the boundary
/// fixes and the agent did not set, so it must run before the properties are resolved.
pub fn apply_and_check_boundary(
    token: &VerifiedToken,
    project: &Project,
    properties: &mut TunnelProperties,
) -> Result<(), BoundaryDenial> {
    let permission = Permission::TunnelsTunnelsCreateDelete;
    let state = project.state();
    token
        .limits
        .boundary()
        .create(&project.id, state.workspace_id.as_deref(), properties)
        .map_err(|refusal| BoundaryDenial::outside(permission, refusal.field))
}

/// Checks that the token's boundary allows its bearer to close this tunnel.
pub fn check_close_boundary(
    token: &VerifiedToken,
    project: &Project,
    tunnel: &Tunnel,
) -> Result<(), BoundaryDenial> {
    let permission = Permission::TunnelsTunnelsCreateDelete;
    let state = project.state();
    token
        .limits
        .boundary()
        .close(&project.id, state.workspace_id.as_deref(), tunnel)
        .map_err(|refusal| BoundaryDenial::outside(permission, refusal.field))
}

/// Checks that the token's boundary allows its bearer to dial this tunnel. A boundary that requires
/// a path does not allow it: a dialled stream has none.
pub fn check_dial_boundary(
    token: &VerifiedToken,
    project: &Project,
    tunnel: &Tunnel,
) -> Result<(), BoundaryDenial> {
    let permission = Permission::TunnelsStreamsCreateDelete;
    let state = project.state();
    token
        .limits
        .boundary()
        .connect(&project.id, state.workspace_id.as_deref(), tunnel, None)
        .map_err(|refusal| BoundaryDenial::outside(permission, refusal.field))
}

/// Checks that the token's boundary allows anything of `project` to be listed.
pub fn check_list_boundary(token: &VerifiedToken, project: &Project) -> Result<(), BoundaryDenial> {
    let permission = Permission::TunnelsResourcesReadOnly;
    let state = project.state();
    if token
        .limits
        .boundary()
        .may_list(&project.id, state.workspace_id.as_deref())
    {
        Ok(())
    } else {
        Err(BoundaryDenial::outside(permission, None))
    }
}

fn in_field(field: Option<&str>) -> String {
    field
        .map(|field| format!(" in `{field}`"))
        .unwrap_or_default()
}
