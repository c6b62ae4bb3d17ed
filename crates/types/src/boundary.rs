//! `resources.tunnels`: where a credential reaches (EN-7, ED-1c, ED-7).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::filter::ParamError;
use crate::path::NormalPath;
use crate::tunnel::{Tunnel, TunnelProperties};

/// Where a credential reaches. Permission and boundary must both allow.
#[derive(Clone, Debug)]
pub struct Boundary(());

impl Boundary {
    /// No boundary: everything that the permissions allow.
    pub fn none() -> Self {
        Self(())
    }

    /// Reads the `resources` claim. Absent means none; a wrong shape anywhere makes a boundary
    /// that refuses everything.
    pub fn parse(resources: Option<&Value>, compat: bool) -> Self {
        let _ = (resources, compat);
        Self(())
    }

    /// Checks a `resources` value for minting; the error names the field.
    pub fn check(resources: &Value, compat: bool) -> Result<(), ParamError> {
        let _ = (resources, compat);
        Err(ParamError::new("resources", "not read"))
    }

    /// Whether the token carries a tunnel resource at all (EN-5d).
    pub fn has_tunnel_resource(&self) -> bool {
        true
    }

    /// Whether listing is allowed and creating and connecting are refused (EN-5c).
    pub fn watch_only_shape(&self) -> bool {
        false
    }

    /// Whether a path has to be judged: if so, the request's path is normalised before
    /// [`connect`](Self::connect) and forwarded in that form.
    pub fn needs_path(&self) -> bool {
        true
    }

    /// Whether anything may be listed in the project.
    pub fn may_list(&self, project: &str, workspace: Option<&str>) -> bool {
        let _ = (project, workspace);
        false
    }

    /// Whether everything may be listed in the project, without a filter or a selection.
    pub fn may_list_all(&self, project: &str, workspace: Option<&str>) -> bool {
        let _ = (project, workspace);
        false
    }

    /// How much of a tunnel is to be seen.
    pub fn list(&self, project: &str, workspace: Option<&str>, tunnel: &Tunnel) -> ListScope {
        let _ = (project, workspace, tunnel);
        ListScope::Hidden
    }

    /// Whether a stream may be opened to the tunnel, at the path for HTTP. Without a path, a
    /// condition on the path is not met.
    pub fn connect(
        &self,
        project: &str,
        workspace: Option<&str>,
        tunnel: &Tunnel,
        path: Option<&NormalPath>,
    ) -> Result<(), Refusal> {
        let _ = (project, workspace, tunnel, path);
        Err(Refusal { field: None })
    }

    /// Whether a tunnel with these properties may be created. Sets what the boundary fixes and
    /// the client left open. Call it before [`TunnelProperties::resolve`].
    pub fn create(
        &self,
        project: &str,
        workspace: Option<&str>,
        properties: &mut TunnelProperties,
    ) -> Result<(), Refusal> {
        let _ = (project, workspace, properties);
        Err(Refusal { field: None })
    }
}

/// How much of an object a boundary shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListScope {
    /// Nothing.
    Hidden,
    /// The object; with `select`, these fields of it alone.
    Visible {
        /// JSON names of the fields.
        select: Option<BTreeSet<String>>,
    },
}

impl ListScope {
    /// The object as it may be shown, or nothing.
    pub fn apply(&self, mut object: Value) -> Option<Value> {
        match self {
            Self::Hidden => None,
            Self::Visible { select: None } => Some(object),
            Self::Visible {
                select: Some(fields),
            } => {
                if let Some(members) = object.as_object_mut() {
                    members.retain(|name, _| fields.contains(name));
                }
                Some(object)
            }
        }
    }
}

/// The boundary does not allow it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("outside the boundary of the token")]
pub struct Refusal {
    /// Property that contradicts the boundary, where there is one.
    pub field: Option<String>,
}
