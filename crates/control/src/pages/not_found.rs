//! The response for unknown addresses: a page for people, a problem for programs.

use axum::response::{IntoResponse as _, Response};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};
use types::problem::Problem;

use super::layout::{MessagePage, page_with};
use crate::http_api::problem::Refusal;

/// Any path without a route.
pub async fn not_found(headers: HeaderMap) -> Response {
    let mut response = if accepts_pages(&headers) {
        page()
    } else {
        Refusal::from(Problem::not_found()).into_response()
    };
    response
        .headers_mut()
        .append(VARY, HeaderValue::from_static("accept"));
    response
}

/// The link leads to the dashboard, or to the sign-in of a visitor without a session.
fn page() -> Response {
    let problem = Problem::not_found();
    let template = MessagePage {
        title: problem.title(),
        text: &problem.detail,
        link: Some(("/", "Go to the dashboard")),
    };
    page_with(StatusCode::NOT_FOUND, &template)
}

/// `GET /favicon.ico`
pub(super) async fn icon() -> Response {
    let headers = [
        (CONTENT_TYPE, "image/svg+xml"),
        // The icon is public and rarely changes: one request for each day.
        (CACHE_CONTROL, "public, max-age=86400"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, include_str!("favicon.svg")).into_response()
}

/// True if the client accepts HTML by name, as browsers do for pages (RFC 9110 section 12.5.1).
/// Programs accept JSON, or everything.
fn accepts_pages(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter();
    let ranges = values.filter_map(|value| value.to_str().ok());
    ranges.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_html = parts
            .next()
            .is_some_and(|kind| kind.eq_ignore_ascii_case("text/html"));
        is_html
            && !parts.any(|parameter| matches!(parameter, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}
