//! The router: the routes of all features and the layers around them.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use types::problem::Problem;

use crate::app::App;
use crate::billing::plans;
use crate::caller::whoami;
use crate::credentials::tokens;
use crate::http_api::problem::Refusal;
use crate::http_api::{contracts, rate_limit};
use crate::logs::{traffic, usage};
use crate::projects::{addresses, settings};
use crate::runtime::{health, metrics};
use crate::{
    audit, billing, credentials, domains, engines, forwarder, keys, logs, oauth, operator, pages,
    people, projects, turn, webhooks, webtty_servers, workspaces,
};

/// All routes. Unknown paths get a JSON problem (RFC 9457), and browsers a page.
pub fn router(app: Arc<App>) -> Router {
    router_with(app, Router::new())
}

/// All routes, merged with other routes of the process. Only the limits per source apply to those.
pub fn router_with(app: Arc<App>, surface: Router) -> Router {
    let routes = [
        addresses::routes(),
        audit::routes(),
        billing::routes(),
        contracts::routes(),
        credentials::routes(),
        domains::routes(),
        engines::routes(),
        forwarder::routes(),
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
        traffic::routes(),
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
        .fallback(pages::not_found::not_found)
        .method_not_allowed_fallback(async || Refusal::from(Problem::method_not_allowed()))
        .with_state(Arc::clone(&app))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            rate_limit::limit_callers,
        ))
        .merge(surface)
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            rate_limit::limit_sources,
        ))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            pages::layout::with_abuse_contact,
        ))
        .layer(middleware::map_response(set_no_store))
        .layer(middleware::from_fn_with_state(app, add_resource_metadata))
        .layer(middleware::from_fn(metrics::count_request))
}

/// Responses without their own cache policy are not cached. Tokens, credentials and account data
/// stay out of the browser's cache and of intermediate caches.
async fn set_no_store(mut response: Response) -> Response {
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .entry(CACHE_CONTROL)
        .or_insert(no_store);
    response
}

fn names_metadata(challenge: &HeaderValue) -> bool {
    let text = challenge.to_str().unwrap_or_default();
    text.contains("resource_metadata=")
}

/// Every 401 names the address of the metadata of the protected resource (RFC 9728 section 5.1). A
/// resource with metadata of its own names it itself.
async fn add_resource_metadata(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await.into_response();
    if response.status() == StatusCode::UNAUTHORIZED
        && let Some(challenge) = response.headers().get(WWW_AUTHENTICATE)
        && !names_metadata(challenge)
    {
        let base_url = &app.config.base_url;
        let mut value = challenge.as_bytes().to_vec();
        value.extend_from_slice(
            format!(", resource_metadata=\"{base_url}/.well-known/oauth-protected-resource\"")
                .as_bytes(),
        );
        if let Ok(challenge) = HeaderValue::from_bytes(&value) {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
    }
    response
}
