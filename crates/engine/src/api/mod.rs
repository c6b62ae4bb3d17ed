//! Engine API: lists, live streams and the OpenAPI document, based on the live state and the
//! tokens.
//!
//! [`router`] serves every path of the base engine host that is not the agents'. It does not exist
//! on the host of a published tunnel (EN-1a). Every refusal is a problem document; the order of
//! checks is credential (401), permission (403), format (400), existence (404), boundary (403).

mod answers;
mod caller;
mod close;
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
pub use self::close::TunnelCloser;
pub(crate) use self::lifetime::CredentialGuard;
pub use self::rates::RateLimiter;
pub(crate) use self::rates::SourceAddress;
use crate::access::{Tenancy, Tokens};
use crate::clock::Clock;
use crate::directory::Project;
use crate::live::{LoadMetric, TunnelRegistry, View};
use crate::webtty::Sessions;

/// State shared by the handlers.
#[derive(Debug)]
pub struct Api<A> {
    pub live: Arc<TunnelRegistry<A>>,
    pub closer: Arc<dyn TunnelCloser<A>>,
    pub tokens: Arc<Tokens>,
    pub clock: Arc<dyn Clock>,
    pub tenancy: Tenancy,
    /// Managed terminals.
    pub terminals: Arc<Sessions>,
    /// State of the link to the platform, in a managed engine.
    pub link: Option<Arc<link::Status>>,
    /// `compat.rstream`: accept and send rstream's spellings as well.
    pub compat: bool,
    /// Budget of the bytes of lists and first events of streams.
    pub answers: Arc<AnswerBudget>,
    /// Request rates of callers.
    pub rates: RateLimiter,
    /// Counts the WebSockets: an upgraded connection is no longer part of its connection's task,
    /// and a drain waits for both.
    pub upgraded: TaskTracker,
}

/// Routes of the Engine API. The project of a request is determined by its host, and is passed as
/// an extension of type `Arc<Project>`. Serve the router over HTTP/1.1 with upgrades, and over
/// HTTP/2 with extended CONNECT (RFC 8441) enabled.
pub fn router<A: LoadMetric>(api: Arc<Api<A>>) -> Router {
    let router = Router::new()
        .route(paths::CLIENTS, get(lists::clients::<A>))
        .route(paths::TUNNELS, get(lists::tunnels::<A>))
        .route(
            paths::TUNNEL,
            get(lists::tunnel::<A>).delete(close::close_tunnel::<A>),
        )
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
            cors::allow_platform_origin::<A>,
        ))
        .with_state(api)
}

/// `/api/auth`: reports that the credential is valid, regardless of its permissions, and the state
/// of the link, which shows if the check used current data on a managed engine.
async fn auth<A: LoadMetric>(State(api): State<Arc<Api<A>>>, _: Caller<AnyCredential>) -> Response {
    let Some(link) = &api.link else {
        return StatusCode::NO_CONTENT.into_response();
    };
    let word = if link.is_connected() { "up" } else { "lost" };
    let silence = link.last_message_at().elapsed().as_secs();
    let link = [(paths::PLATFORM_LINK, format!("{word};silence={silence}"))];
    (StatusCode::NO_CONTENT, link).into_response()
}

impl<A> Api<A> {
    /// The view of a caller with this token.
    fn view(
        &self,
        project: &Project,
        token: Arc<credentials::VerifiedToken>,
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
