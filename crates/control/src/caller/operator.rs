//! Operators of the installation.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use store::users::Role;
use types::problem::Problem;

use super::{Principal, identify};
use crate::app::App;
use crate::http_api::problem::{HandlerResult, Refusal};

/// A caller who operates the installation, with an unrestricted credential or a session. For all
/// other callers the operation does not exist (404).
#[derive(Debug)]
pub struct Operator {
    /// The verified caller.
    pub principal: Principal,
}

impl FromRequestParts<Arc<App>> for Operator {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> HandlerResult<Self> {
        let who = identify(parts, app).await?;
        Self::of(who).ok_or_else(|| Problem::not_found().into())
    }
}

impl Operator {
    /// The caller, if it is an operator. A restricted credential is refused, because it was meant
    /// for another purpose.
    pub fn of(who: Principal) -> Option<Self> {
        let is_whole = who.limits.permissions().is_none()
            && who.resources.is_none()
            && !who.limits.boundary().has_tunnel_resource();
        (who.user.role == Role::Admin && is_whole).then_some(Self { principal: who })
    }
}
