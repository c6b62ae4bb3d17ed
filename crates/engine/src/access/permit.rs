//! What an agent or a dialler may do with its token (EN-7).

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

/// Whether the bearer may open this tunnel in `project`. Sets what the token's boundary fixes and
/// the agent left open; so it comes before the properties are resolved.
pub fn may_open_tunnel(
    token: &Verified,
    project: &str,
    properties: &mut TunnelProperties,
) -> Result<(), Denied> {
    let permission = Permission::TunnelsTunnelsCreateDelete;
    require(token, permission)?;
    token
        .boundary
        .create(project, None, properties)
        .map_err(|refusal| Denied::Boundary {
            permission,
            field: refusal.field,
        })
}

/// Whether the bearer may open a stream to this tunnel by dialling it. A boundary that asks for a
/// path is not met: a dialled stream has none.
pub fn may_dial(token: &Verified, project: &str, tunnel: &Tunnel) -> Result<(), Denied> {
    let permission = Permission::TunnelsStreamsCreateDelete;
    require(token, permission)?;
    token
        .boundary
        .connect(project, None, tunnel, None)
        .map_err(|refusal| Denied::Boundary {
            permission,
            field: refusal.field,
        })
}

/// Whether the bearer may list anything of `project`.
pub fn may_list(token: &Verified, project: &str) -> Result<(), Denied> {
    let permission = Permission::TunnelsResourcesReadOnly;
    require(token, permission)?;
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
