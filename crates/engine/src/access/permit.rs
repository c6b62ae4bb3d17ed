//! What an agent or a dialler may do with its token (EN-7).

use super::PROJECT;
use credentials::Verified;
use types::permission::Permission;
use types::problem::Problem;
use types::tunnel::{Tunnel, TunnelProperties};

/// What is missing: permission and boundary must both allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("the token lacks the permission {}", .0.as_str())]
    Permission(Permission),
    /// The boundary says no; to which property, where it is one.
    #[error("outside the boundary of the token{}", in_field(.field.as_deref()))]
    Boundary {
        permission: Permission,
        field: Option<String>,
    },
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        let detail = denied.to_string();
        match denied {
            Denied::Permission(permission) => {
                Self::insufficient_scope(permission).with_detail(detail)
            }
            Denied::Boundary { permission, field } => {
                let problem = Self::insufficient_scope(permission).with_detail(detail);
                match field {
                    Some(field) => problem.with_field(field),
                    None => problem,
                }
            }
        }
    }
}

/// Whether a token holds a permission.
pub fn require(token: &Verified, permission: Permission) -> Result<(), Denied> {
    if token.allows(permission) {
        Ok(())
    } else {
        Err(Denied::Permission(permission))
    }
}

/// Whether the bearer may open tunnels at all; judged before the shape of what it asks for.
pub fn may_create_tunnels(token: &Verified) -> Result<(), Denied> {
    require(token, Permission::TunnelsTunnelsCreateDelete)
}

/// Whether the token's boundary reaches this tunnel. Sets what the boundary fixes and the agent
/// left open; so it comes before the properties are resolved.
pub fn fill_and_judge(token: &Verified, properties: &mut TunnelProperties) -> Result<(), Denied> {
    let permission = Permission::TunnelsTunnelsCreateDelete;
    token
        .boundary
        .create(PROJECT, None, properties)
        .map_err(|refusal| Denied::Boundary {
            permission,
            field: refusal.field,
        })
}

/// Whether the bearer may open a stream to this tunnel by dialling it. A boundary that asks for a
/// path is not met: a dialled stream has none.
pub fn may_dial(token: &Verified, tunnel: &Tunnel) -> Result<(), Denied> {
    let permission = Permission::TunnelsStreamsCreateDelete;
    require(token, permission)?;
    let project = tunnel.project_id.as_deref().unwrap_or(PROJECT);
    token
        .boundary
        .connect(project, tunnel.workspace_id.as_deref(), tunnel, None)
        .map_err(|refusal| Denied::Boundary {
            permission,
            field: refusal.field,
        })
}

/// Whether the token's boundary lets anything of `project` be listed.
pub fn reaches_list(token: &Verified, project: &str) -> Result<(), Denied> {
    let permission = Permission::TunnelsResourcesReadOnly;
    if token.boundary.may_list(project, None) {
        Ok(())
    } else {
        Err(Denied::Boundary {
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
