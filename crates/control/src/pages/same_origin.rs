//! Check that a write comes from a page of the platform.
//!
//! A browser sends the session cookie along with a request that another site triggered. Another
//! site cannot forge `Sec-Fetch-Site` and `Origin`, because the browser writes them. So a write
//! that is authenticated by the cookie must have one of these headers, and each that it has must
//! name the platform. There is no token in the forms, so there is nothing to store or to leak.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{Method, header};

use super::layout::PageRefusal;
use crate::app::App;
use crate::http_api::origin::{is_same_origin, refusal};
use crate::http_api::problem::Refusal;
use crate::people::session;

/// Refuses every write that a page of another site may have sent. This is a layer over all routes
/// of the platform, so that no handler can forget it.
///
/// Other sites cannot make a browser send a bearer token, and the endpoints of [`WITHOUT_COOKIES`]
/// read no cookie. An API handler refuses a call without a session cookie.
pub(crate) async fn require(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let reads = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    if reads || !is_for_cookies(&app, &request) {
        return next.run(request).await;
    }
    if is_same_origin(request.headers(), &app.config.base_url) {
        return next.run(request).await;
    }
    if is_api(request.uri().path()) {
        return Refusal::from(refusal()).into_response();
    }
    PageRefusal::from(refusal()).into_response()
}

/// True if a route uses the cookies of a request for a decision, even only to identify the browser.
fn is_for_cookies(app: &App, request: &Request) -> bool {
    let path = request.uri().path();
    if WITHOUT_COOKIES.contains(&path) {
        return false;
    }
    if is_api(path) {
        let has_bearer = request.headers().contains_key(header::AUTHORIZATION);
        return !has_bearer && session::cookie(app, request.headers()).is_some();
    }
    true
}

/// True for paths whose refusals are problems, not pages: the API, and the Engine API of projects.
fn is_api(path: &str) -> bool {
    path.starts_with("/api/") || path.starts_with("/engine/")
}

/// Endpoints outside the API that accept writes and read no cookie. Clients, devices, engines
/// and the OpenID provider authenticate with the content of the request.
pub const WITHOUT_COOKIES: [&str; 5] = [
    "/link/v1/reports",
    "/login/openid/back-channel-logout",
    "/oauth/token",
    "/oauth/revoke",
    "/oauth/device_authorization",
];
