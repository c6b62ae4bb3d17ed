//! Who calls: an extractor, so that no handler can forget to ask (CP-10).

mod bearer;
mod needs;
mod operator;
mod principal;
mod signature_cache;
mod token;
mod verify;

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use types::problem::Problem;

pub(crate) use self::bearer::Bearer;
pub use self::needs::{
    Anyone, CredentialsRead, CredentialsWrite, EventsRead, LogsRead, PlanRead, ProjectsRead,
    ProjectsWrite, RequiredPermission, TokensCreate, TurnCredentialsCreate, WebhooksRead,
    WebhooksWrite, WebttyServersRead, WebttyServersWrite, WorkspacesProtect, WorkspacesRead,
};
pub use self::operator::Operator;
pub use self::principal::{Principal, Source};
pub use self::signature_cache::SignatureCache;
use crate::app::App;
use crate::extract::ClientIp;
use crate::people::session;
use crate::problem::{Answer, Refusal};

/// A caller whose credential is valid and holds the permission that `P` names (CP-11).
///
/// Everything else (tenancy, role, boundary) depends on what is called for: see
/// [`crate::access`].
#[derive(Debug)]
pub struct Caller<P> {
    /// Who it is.
    pub who: Principal,
    needs: PhantomData<fn() -> P>,
}

impl<P: RequiredPermission> FromRequestParts<Arc<App>> for Caller<P> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Answer<Self> {
        let who = identify(parts, app).await?;
        if let Some(permission) = P::PERMISSION
            && !who.allows(permission)
        {
            return Err(Problem::insufficient_scope(permission).into());
        }
        Ok(Self {
            who,
            needs: PhantomData,
        })
    }
}

/// The caller whom a surface in this process has identified at its own door, by bearer alone;
/// `None` where no bearer was sent.
pub async fn of_bearer(app: &App, headers: &HeaderMap) -> Answer<Option<Principal>> {
    match Bearer::of(headers) {
        Bearer::Token(token) => {
            // It has not said where the caller is.
            let who = verify::principal(app, token, None).await?;
            app.rate_limiter.admit(&who)?;
            Ok(Some(who))
        }
        Bearer::Malformed => Err(Problem::invalid_token().into()),
        Bearer::Absent => Ok(None),
    }
}

/// The credential that was sent explicitly is the one that counts (CP-13).
pub(crate) async fn identify(parts: &Parts, app: &App) -> Answer<Principal> {
    // Extensions never come over the network: a surface in this process has asked already.
    if let Some(who) = parts.extensions.get::<Principal>() {
        return Ok(who.clone());
    }
    match Bearer::of(&parts.headers) {
        Bearer::Token(token) => {
            // For the note of the last use alone.
            let from = ClientIp::of(parts, app);
            verify::principal(app, token, from).await
        }
        Bearer::Malformed => Err(Problem::invalid_token().into()),
        Bearer::Absent => {
            let caller = session::caller(app, parts).await?;
            Ok(caller.ok_or_else(Problem::unauthenticated)?)
        }
    }
}
