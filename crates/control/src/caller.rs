//! Authentication of callers. It is an extractor, so that no handler can forget it (CP-10).

pub mod access;
mod bearer;
mod operator;
mod principal;
mod required_permission;
mod signature_cache;
mod token;
mod verify;
pub mod whoami;

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use types::problem::Problem;

pub(crate) use self::bearer::Bearer;
pub use self::operator::Operator;
pub use self::principal::{Principal, Source};
pub use self::required_permission::{
    AnyCaller, CredentialsRead, CredentialsWrite, EventsRead, LogsRead, PlanRead, ProjectsRead,
    ProjectsWrite, RequiredPermission, TokensCreate, TurnCredentialsCreate, WebhooksRead,
    WebhooksWrite, WebttyServersRead, WebttyServersWrite, WorkspacesProtect, WorkspacesRead,
};
pub use self::signature_cache::SignatureCache;
use crate::app::App;
use crate::http_api::extract::ClientIp;
use crate::http_api::origin;
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::people::session;

/// A caller with a valid credential that has the permission `P` (CP-11).
///
/// Other checks (tenancy, role, boundary) depend on the resource: see [`self::access`].
#[derive(Debug)]
pub struct Caller<P> {
    /// The verified caller.
    pub principal: Principal,
    permission: PhantomData<fn() -> P>,
}

impl<P: RequiredPermission> FromRequestParts<Arc<App>> for Caller<P> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> HandlerResult<Self> {
        let who = identify(parts, app).await?;
        if let Some(permission) = P::PERMISSION
            && !who.allows(permission)
        {
            return Err(Problem::insufficient_scope(permission).into());
        }
        Ok(Self {
            principal: who,
            permission: PhantomData,
        })
    }
}

/// Authenticates a caller for another interface in this process, by bearer token only. `None` if no
/// bearer token was sent.
pub async fn of_bearer(app: &App, headers: &HeaderMap) -> HandlerResult<Option<Principal>> {
    match Bearer::of(headers) {
        Bearer::Token(token) => {
            // The interface does not pass the caller's address.
            let who = verify::principal(app, token, None).await?;
            app.rate_limiter.admit(&who)?;
            Ok(Some(who))
        }
        Bearer::Malformed => Err(Problem::invalid_token().into()),
        Bearer::Absent => Ok(None),
    }
}

/// An explicit credential takes precedence over the session cookie (CP-13).
pub(crate) async fn identify(parts: &Parts, app: &App) -> HandlerResult<Principal> {
    // Extensions never come from the network. An interface in this process has already
    // authenticated the caller.
    if let Some(who) = parts.extensions.get::<Principal>() {
        return Ok(who.clone());
    }
    match Bearer::of(&parts.headers) {
        Bearer::Token(token) => {
            // Only used to record the last use.
            let from = ClientIp::of(parts, app);
            verify::principal(app, token, from).await
        }
        Bearer::Malformed => Err(Problem::invalid_token().into()),
        Bearer::Absent => {
            let has_cookie = session::cookie(app, &parts.headers).is_some();
            if has_cookie && origin::is_foreign(&parts.headers, &app.config.base_url) {
                return Err(origin::refusal().into());
            }
            let caller = session::caller(app, parts).await?;
            Ok(caller.ok_or_else(Problem::unauthenticated)?)
        }
    }
}
