//! Whose projects an engine serves, and who may do what in them.

use std::sync::Arc;

use credentials::Verified;
use types::permission::{Permission, Permissions};

use super::boundary_check::BoundaryDenial;
use crate::directory::{Directory, Project};

/// The two kinds of engine. All else is the same code.
#[derive(Debug, Clone)]
pub enum Tenancy {
    /// One project, and every valid token is of it.
    Community(Arc<Project>),
    /// The projects of a platform's cluster, each with its people.
    Managed(Arc<Directory>),
}

impl Tenancy {
    /// What the platform told; `None` on a community engine.
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

    /// Whether the bearer of a token has anything to do with a project at all: what an agent is
    /// asked before it is taken.
    ///
    /// # Errors
    /// [`BoundaryDenial`], where the project is out of use, its people do not know the bearer, or the
    /// token's boundary does not reach it.
    pub fn admits(&self, token: &Verified, project: &Project) -> Result<(), BoundaryDenial> {
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
                return Err(BoundaryDenial::NoPart(permission));
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

    /// Whether the bearer of a token may do this in a project: by the token's own permissions, and
    /// on a managed engine by what its owner is there. Boundaries are judged with what they are
    /// about.
    ///
    /// # Errors
    /// [`BoundaryDenial`], where any of these does not allow it.
    pub fn require(
        &self,
        token: &Verified,
        project: &Project,
        permission: Permission,
    ) -> Result<(), BoundaryDenial> {
        self.require_of(
            token.user_id.as_deref(),
            token.limits.permissions(),
            project,
            permission,
        )
    }

    /// As [`Self::require`], for whatever speaks for a user: with the permissions that it holds,
    /// `None` where they are not narrowed.
    ///
    /// # Errors
    /// [`BoundaryDenial`], where any of these does not allow it.
    pub fn require_of(
        &self,
        user_id: Option<&str>,
        held: Option<Permissions>,
        project: &Project,
        permission: Permission,
    ) -> Result<(), BoundaryDenial> {
        if held.is_some_and(|held| !held.contains(permission)) {
            return Err(BoundaryDenial::Permission(permission));
        }
        if !project.state().in_use {
            return Err(BoundaryDenial::Suspended);
        }
        match self {
            Self::Community(_) => Ok(()),
            Self::Managed(directory) if directory.permits(user_id, project, permission) => Ok(()),
            Self::Managed(_) => Err(BoundaryDenial::NoPart(permission)),
        }
    }
}
