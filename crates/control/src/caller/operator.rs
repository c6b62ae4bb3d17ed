//! Operators of the installation.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use store::users::Role;
use types::problem::Problem;

use super::{Principal, identify};
use crate::app::App;
use crate::problem::{Answer, Refusal};

/// A caller who runs the installation, with a credential that is not narrowed or in a session.
/// For everybody else the operation is not there.
#[derive(Debug)]
pub struct Operator {
    /// Who it is.
    pub who: Principal,
}

impl FromRequestParts<Arc<App>> for Operator {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Answer<Self> {
        let who = identify(parts, app).await?;
        Self::of(who).ok_or_else(|| Problem::not_found().into())
    }
}

impl Operator {
    /// The caller, if it is one. A credential that somebody narrowed was meant for something else,
    /// whatever it was narrowed to.
    pub fn of(who: Principal) -> Option<Self> {
        let is_whole = who.limits.permissions().is_none()
            && who.resources.is_none()
            && !who.limits.boundary().has_tunnel_resource();
        (who.user.role == Role::Admin && is_whole).then_some(Self { who })
    }
}
