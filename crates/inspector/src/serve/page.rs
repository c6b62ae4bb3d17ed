//! The inspector's web page: static files in the binary, without external resources.

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
            get(async || asset("text/javascript; charset=utf-8", RENDER_SCRIPT)),
        )
        .route("/icon.svg", get(async || asset("image/svg+xml", ICON)))
}

fn asset(content_type: &'static str, body: &'static str) -> impl IntoResponse {
    let content_type = (header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    (AppendHeaders([content_type]), AppendHeaders(HEADERS), body)
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
    // Another program may use the same port later and must not get a cached copy of this page.
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
const RENDER_SCRIPT: &str = include_str!("page/show.js");
const ICON: &str = include_str!("page/icon.svg");
