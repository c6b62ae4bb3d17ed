//! Engine API: lists, live streams and the document, over the live state and the tokens.
//!
//! [`router`] answers every path of the base engine host that is not the agents'. On a published
//! tunnel's host nothing of this exists (EN-1a). Every refusal is a problem; the order of checks
//! is credential (401), permission (403), shape (400), existence (404), boundary (403).

mod answers;
mod caller;
mod cors;
#[cfg(feature = "discovery")]
mod document;
mod lifetime;
mod lists;
mod rates;
mod sse;
mod watch;
mod websocket;
mod webtty;

use std::sync::Arc;

use ::api::engine as paths;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use daemon::problem::Refusal;
use http::StatusCode;
use tokio_util::task::TaskTracker;
use types::filter::WatchParams;
use types::problem::Problem;
use types::query_credential;

pub use self::answers::AnswerBudget;
use self::caller::{AnyCredential, Caller};
pub(crate) use self::lifetime::CredentialGuard;
pub(crate) use self::rates::Source;
pub use self::rates::{ApiRates, RateLimiter};
use crate::access::{Tenancy, Tokens};
use crate::clock::Clock;
use crate::directory::Project;
use crate::live::{Live, LoadMetric, View};
use crate::webtty::Sessions;

/// What the handlers share.
#[derive(Debug)]
pub struct Api<A> {
    pub live: Arc<Live<A>>,
    pub tokens: Arc<Tokens>,
    pub clock: Arc<dyn Clock>,
    pub tenancy: Tenancy,
    /// Managed terminals.
    pub terminals: Arc<Sessions>,
    /// How the link to the platform does, in a managed engine.
    pub link: Option<Arc<link::Status>>,
    /// `compat.rstream`: the other brand's spellings too.
    pub compat: bool,
    /// Bytes that lists and first events of streams may hold.
    pub answers: Arc<AnswerBudget>,
    /// How often callers may ask.
    pub rates: RateLimiter,
    /// Counts the WebSockets: what was upgraded is no part of its connection's task any more, and
    /// a drain waits for both.
    pub upgraded: TaskTracker,
}

/// Routes of the Engine API. The project that a request is about is found by its host, and comes
/// as an extension of type `Arc<Project>`. Serve it over HTTP/1.1 and HTTP/2, the latter with extended CONNECT
/// (RFC 8441) enabled, and the former with upgrades.
pub fn router<A: LoadMetric>(api: Arc<Api<A>>) -> Router {
    let router = Router::new()
        .route(paths::CLIENTS, get(lists::clients::<A>))
        .route(paths::TUNNELS, get(lists::tunnels::<A>))
        .route(paths::TUNNEL, get(lists::tunnel::<A>))
        .route(paths::AUTH, get(auth::<A>))
        .route(paths::SSE, sse::route())
        .route(
            paths::WEBSOCKET,
            get(websocket::watch::<A>).connect(websocket::watch::<A>),
        );
    let router = router.merge(webtty::router());
    #[cfg(feature = "discovery")]
    let router = router.route(paths::OPENAPI, get(document::serve));
    router
        .fallback(async || Refusal::from(Problem::not_found()))
        .method_not_allowed_fallback(async || Refusal::from(Problem::method_not_allowed()))
        .layer(axum::middleware::from_fn(rates::layer))
        .layer(axum::middleware::from_fn_with_state(
            Arc::clone(&api),
            cors::let_the_platform_in::<A>,
        ))
        .with_state(api)
}

/// `/api/auth`: whether the credential is valid, whatever it may do; and whether what it was judged
/// by is of now, which a managed engine knows by its link.
async fn auth<A: LoadMetric>(State(api): State<Arc<Api<A>>>, _: Caller<AnyCredential>) -> Response {
    let Some(link) = &api.link else {
        return StatusCode::NO_CONTENT.into_response();
    };
    let word = if link.is_connected() { "up" } else { "lost" };
    let silence = link.heard().elapsed().as_secs();
    let link = [(paths::PLATFORM_LINK, format!("{word};silence={silence}"))];
    (StatusCode::NO_CONTENT, link).into_response()
}

impl<A> Api<A> {
    /// What a caller with this token sees.
    fn view(
        &self,
        project: &Project,
        token: Arc<credentials::Verified>,
        params: WatchParams,
    ) -> View {
        View {
            project: Arc::clone(&project.id),
            workspace: project.state().workspace_id.clone(),
            params,
            token,
            webtty: false,
            compat: self.compat,
        }
    }

    /// Names of the reserved query parameter.
    fn reserved(&self) -> &'static [&'static str] {
        if self.compat {
            query_credential::COMPAT_NAMES
        } else {
            query_credential::NAMES
        }
    }
}
