//! The application: the shared state of its handlers, and its router.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use daemon::clock::Clock;
use http::header::{CACHE_CONTROL, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use store::Store;
use types::problem::Problem;

use crate::caller::SignatureCache;
use crate::clock_skew::ClockSkew;
use crate::config::Config;
use crate::engines::Engines;
use crate::health::Health;
use crate::jobs::Jobs;
use crate::keys::Keys;
use crate::logs::SearchLimit;
use crate::oauth::Oauth;
use crate::people::People;
use crate::plans::PlanService;
use crate::problem::Refusal;
use crate::rate_limit::{self, RateLimiter};
use crate::webhooks::Webhooks;
use crate::{
    addresses, audit, billing, contracts, credentials, engines, health, keys, logs, metrics, oauth,
    operator, pages, people, plans, projects, settings, tokens, turn, usage, webhooks,
    webtty_servers, whoami, workspaces,
};

/// Shared state of all handlers. A process has one.
#[derive(Debug)]
pub struct App {
    /// The database.
    pub store: Store,
    /// Validated configuration.
    pub config: Config,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Keys for signing, verification and encryption.
    pub keys: Keys,
    /// Shared state of handlers about users.
    pub people: People,
    /// Plans, regions and prices.
    pub shop: PlanService,
    /// Throttles of the OAuth handlers.
    pub oauth: Oauth,
    /// Rate limits of callers.
    pub rate_limiter: RateLimiter,
    /// Limit of concurrent log searches.
    pub searches: SearchLimit,
    /// Difference between this process's clock and the database's.
    pub clock_skew: ClockSkew,
    /// Readiness of the process.
    pub health: Health,
    /// Periodic background jobs.
    pub jobs: Jobs,
    /// Engines that are connected or can connect.
    pub engines: Engines,
    /// Sender of webhooks.
    pub webhooks: Webhooks,
    /// Cache of verified signatures.
    pub verdicts: SignatureCache,
}

impl App {
    /// The current time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// All routes. An unknown route gives a problem in JSON, never a page.
pub fn router(app: Arc<App>) -> Router {
    router_beside(app, Router::new())
}

/// All routes, and those of another interface.
pub fn router_beside(app: Arc<App>, surface: Router) -> Router {
    let routes = [
        addresses::routes(),
        audit::routes(),
        billing::routes(),
        contracts::routes(),
        credentials::routes(),
        engines::routes(),
        health::routes(),
        keys::routes(),
        logs::routes(),
        oauth::routes(),
        operator::routes(),
        pages::routes(),
        people::routes(),
        plans::routes(),
        projects::routes(),
        settings::routes(),
        tokens::routes(),
        turn::routes(),
        usage::routes(),
        webhooks::routes(),
        webtty_servers::routes(),
        whoami::routes(),
        workspaces::routes(),
    ];
    routes
        .into_iter()
        .fold(Router::new(), Router::merge)
        .route_layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            pages::same_origin::require,
        ))
        .fallback(async || Refusal::from(Problem::not_found()))
        .method_not_allowed_fallback(async || Refusal::from(Problem::method_not_allowed()))
        .with_state(Arc::clone(&app))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            rate_limit::limit,
        ))
        .merge(surface)
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            rate_limit::limit_source,
        ))
        .layer(middleware::map_response(keep_out_of_caches))
        .layer(middleware::from_fn_with_state(app, name_resource_metadata))
        .layer(middleware::from_fn(metrics::count_request))
}

/// Forbids caching of responses without their own cache headers. Tokens, credentials and account
/// data must not be stored in caches between the platform and the caller, or in the browser's
/// cache.
async fn keep_out_of_caches(mut response: Response) -> Response {
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .entry(CACHE_CONTROL)
        .or_insert(no_store);
    response
}

/// Every 401 names the address of the protected resource's metadata (RFC 9728 section 5.1).
async fn name_resource_metadata(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await.into_response();
    if response.status() == StatusCode::UNAUTHORIZED
        && let Some(challenge) = response.headers().get(WWW_AUTHENTICATE)
    {
        let address = &app.config.base_url;
        let mut text = challenge.as_bytes().to_vec();
        text.extend_from_slice(
            format!(", resource_metadata=\"{address}/.well-known/oauth-protected-resource\"")
                .as_bytes(),
        );
        if let Ok(challenge) = HeaderValue::from_bytes(&text) {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
    }
    response
}
