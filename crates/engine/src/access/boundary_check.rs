//! What an agent, a dialler or a reader may do with its token (EN-7). Whether it holds a
//! permission in a project at all is [`super::Tenancy::require`]'s to say.

use credentials::Verified;
use types::permission::Permission;
use types::problem::Problem;
use types::tunnel::{Tunnel, TunnelProperties};

use crate::directory::Project;

/// What is missing: permission, part in the project and boundary must all allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BoundaryDenial {
    #[error("the token lacks the permission {}", .0.as_str())]
    Permission(Permission),
    /// The owner of the token is not a member of the project's workspace, or not in a role that
    /// allows it.
    #[error("the owner of the token may not do this in this project")]
    NoPart(Permission),
    /// Nobody may use the project now.
    #[error("the project is suspended")]
    Suspended,
    /// The boundary says no; to which property, where it is one.
    #[error("outside the boundary of the token{}", in_field(.field.as_deref()))]
    Boundary {
        permission: Permission,
        field: Option<String>,
    },
}

impl From<BoundaryDenial> for Problem {
    fn from(denied: BoundaryDenial) -> Self {
        let detail = denied.to_string();
        match denied {
            BoundaryDenial::Permission(permission) | BoundaryDenial::NoPart(permission) => {
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

/// Whether the token's boundary reaches this tunnel. Sets what the boundary fixes and the agent
/// left open; so it comes before the properties are resolved.
pub fn apply_and_check_boundary(
    token: &Verified,
    project: &Project,
    properties: &mut TunnelProperties,
) -> Result<(), BoundaryDenial> {
    let permission = Permission::TunnelsTunnelsCreateDelete;
    let state = project.state();
    token
        .limits
        .boundary()
        .create(&project.id, state.workspace_id.as_deref(), properties)
        .map_err(|refusal| BoundaryDenial::Boundary {
            permission,
            field: refusal.field,
        })
}

/// Whether the token's boundary lets its bearer open a stream to this tunnel by dialling it. One
/// that asks for a path is not met: a dialled stream has none.
pub fn reaches_stream(
    token: &Verified,
    project: &Project,
    tunnel: &Tunnel,
) -> Result<(), BoundaryDenial> {
    let permission = Permission::TunnelsStreamsCreateDelete;
    let state = project.state();
    token
        .limits
        .boundary()
        .connect(&project.id, state.workspace_id.as_deref(), tunnel, None)
        .map_err(|refusal| BoundaryDenial::Boundary {
            permission,
            field: refusal.field,
        })
}

/// Whether the token's boundary lets anything of `project` be listed.
pub fn reaches_list(token: &Verified, project: &Project) -> Result<(), BoundaryDenial> {
    let permission = Permission::TunnelsResourcesReadOnly;
    let state = project.state();
    if token
        .limits
        .boundary()
        .may_list(&project.id, state.workspace_id.as_deref())
    {
        Ok(())
    } else {
        Err(BoundaryDenial::Boundary {
            permission,
            field: None,
        })
    }
}

fn in_field(field: Option<&str>) -> String {
    field
        .map(|field| format!(" in `{field}`"))
        .unwrap_or_default()
}
