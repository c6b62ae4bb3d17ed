//! The page: our own static files, without external resources.

use std::sync::Arc;

use axum::{
    Router,
    http::{HeaderName, HeaderValue, header},
    response::{AppendHeaders, IntoResponse},
    routing::get,
};

pub(super) fn router() -> Router<Arc<super::State>> {
    Router::new()
        .route("/", get(async || asset("text/html; charset=utf-8", HTML)))
        .route(
            "/page.css",
            get(async || asset("text/css; charset=utf-8", STYLE)),
        )
        .route(
            "/page.js",
            get(async || asset("text/javascript; charset=utf-8", SCRIPT)),
        )
        .route(
            "/show.js",
            get(async || asset("text/javascript; charset=utf-8", SHOW)),
        )
        .route("/icon.svg", get(async || asset("image/svg+xml", ICON)))
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(kind));
    (AppendHeaders([kind]), AppendHeaders(HEADERS), text)
}

const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'",
        ),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    // Tomorrow another program may use the same port.
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
const SHOW: &str = include_str!("page/show.js");
const ICON: &str = include_str!("page/icon.svg");
