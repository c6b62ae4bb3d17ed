//! The projects that an engine serves, and the permissions of users in them.

use std::sync::Arc;

use credentials::VerifiedToken;
use types::permission::{Permission, Permissions};

use super::boundary_check::BoundaryDenial;
use crate::directory::{Directory, Project};

/// The two kinds of engine. All other code is the same for both.
#[derive(Debug, Clone)]
pub enum Tenancy {
    /// One project; every valid token belongs to it.
    Community(Arc<Project>),
    /// The projects of a platform's cluster, each with its members.
    Managed(Arc<Directory>),
}

impl Tenancy {
    /// The state received from the platform; `None` on a community engine.
    pub fn directory(&self) -> Option<&Arc<Directory>> {
        match self {
            Self::Community(_) => None,
            Self::Managed(directory) => Some(directory),
        }
    }

    /// The project with this id.
    pub fn project(&self, id: &str) -> Option<Arc<Project>> {
        match self {
            Self::Community(project) => (*project.id == *id).then(|| Arc::clone(project)),
            Self::Managed(directory) => directory.project(id),
        }
    }

    /// Checks that the bearer of a token has any access to a project. An agent must pass this check
    /// before it is accepted.
    ///
    /// # Errors
    /// [`BoundaryDenial`] if the project is suspended, the bearer is not a member, or the token's
    /// boundary does not include the project.
    pub fn check_access(
        &self,
        token: &VerifiedToken,
        project: &Project,
    ) -> Result<(), BoundaryDenial> {
        let state = project.state();
        if !state.in_use {
            return Err(BoundaryDenial::Suspended);
        }
        let permission = Permission::TunnelsTunnelsCreateDelete;
        let workspace = state.workspace_id.as_deref();
        if let Self::Managed(directory) = self {
            let user = token.user_id.as_deref();
            let person = user.and_then(|user| directory.person(user));
            let knows = |workspace| person.is_some_and(|person| person.is_member(workspace));
            if !workspace.is_some_and(knows) {
                return Err(BoundaryDenial::NotMember(permission));
            }
            if !token.limits.boundary().reaches(&project.id, workspace) {
                return Err(BoundaryDenial::Boundary {
                    permission,
                    field: None,
                });
            }
        }
        Ok(())
    }

    /// Checks that the bearer of a token has a permission in a project: by the token's own
    /// permissions, and on a managed engine by its owner's role. Boundaries are checked separately,
    /// with the object that they are about.
    ///
    /// # Errors
    /// [`BoundaryDenial`] if any of these does not allow it.
    pub fn require(
        &self,
        token: &VerifiedToken,
        project: &Project,
        permission: Permission,
    ) -> Result<(), BoundaryDenial> {
        self.require_for_user(
            token.user_id.as_deref(),
            token.limits.permissions(),
            project,
            permission,
        )
    }

    /// Like [`Self::require`], for anything that acts for a user, with its permissions; `None` if
    /// they are not restricted.
    ///
    /// # Errors
    /// [`BoundaryDenial`] if any of these does not allow it.
    pub fn require_for_user(
        &self,
        user_id: Option<&str>,
        permissions: Option<Permissions>,
        project: &Project,
        permission: Permission,
    ) -> Result<(), BoundaryDenial> {
        if permissions.is_some_and(|permissions| !permissions.contains(permission)) {
            return Err(BoundaryDenial::Permission(permission));
        }
        if !project.state().in_use {
            return Err(BoundaryDenial::Suspended);
        }
        match self {
            Self::Community(_) => Ok(()),
            Self::Managed(directory) if directory.permits(user_id, project, permission) => Ok(()),
            Self::Managed(_) => Err(BoundaryDenial::NotMember(permission)),
        }
    }
}
