//! Web pages that call the endpoints: the platform's own ones, and those of the configured origins.
//!
//! Stricter than the layer of `tower-http`: requests of other pages, and those with several origins,
//! are refused before they are processed.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
    VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use types::tunnel::WebOrigin;

/// The pages that may call the endpoints.
#[derive(Debug, Clone)]
pub(super) struct AllowedOrigins {
    base_url: Arc<str>,
    listed: Arc<[WebOrigin]>,
}

/// The page that sent a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Page {
    /// No page of another origin sent it.
    Own,
    /// A page of a listed origin, with the value of its `Origin`.
    Listed(HeaderValue),
    /// A page that may not call the endpoints.
    Foreign,
}

impl AllowedOrigins {
    pub(super) fn new(base_url: &str, listed: Vec<WebOrigin>) -> Self {
        Self {
            base_url: base_url.into(),
            listed: listed.into(),
        }
    }

    /// The page that sent a request (RFC 6454 section 7).
    pub(super) fn page(&self, headers: &HeaderMap) -> Page {
        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(first) = origins.next() else {
            return Page::Own;
        };
        if origins.next().is_some() {
            return Page::Foreign;
        }
        if is_own(first, &self.base_url) {
            return Page::Own;
        }
        // Byte for byte: browsers write origins in one form only.
        if self.listed.iter().any(|origin| first == origin.as_str()) {
            return Page::Listed(first.clone());
        }
        Page::Foreign
    }
}

fn is_own(sent: &HeaderValue, base_url: &str) -> bool {
    let parsed = sent.to_str().ok();
    let parsed = parsed.and_then(|text| text.parse::<Uri>().ok());
    parsed.is_some_and(|parsed| {
        let parts = (
            parsed.scheme_str(),
            parsed.authority(),
            parsed.path_and_query(),
        );
        let (Some(scheme), Some(authority), path) = parts else {
            return false;
        };
        // For an origin, which has no path, the parser returns the root path.
        let is_bare = path.is_none_or(|path| path == "/") && !sent.as_bytes().ends_with(b"/");
        is_bare
            && with_port(&format!("{scheme}://{authority}"))
                .eq_ignore_ascii_case(&with_port(base_url))
    })
}

/// An origin with its port.
pub(super) fn with_port(origin: &str) -> String {
    let (scheme, authority) = origin.split_once("://").unwrap_or(("https", origin));
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.ends_with(']'));
    match (has_port, scheme) {
        (true, _) => origin.to_owned(),
        (false, "http") => format!("{origin}:80"),
        (false, _) => format!("{origin}:443"),
    }
}

/// True for the preflight of a request (Fetch, "CORS-preflight fetch"), which has no credential.
pub(super) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The response to a preflight of a listed page, without the headers of [`allow`].
pub(super) fn preflight() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let fixed = HeaderValue::from_static;
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, fixed("GET, POST, DELETE"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, fixed(REQUEST_HEADERS));
    headers.insert(ACCESS_CONTROL_MAX_AGE, fixed("3600"));
    response
}

/// Lets a listed page read a response. Cookies are never accepted here, so they are not allowed.
pub(super) fn allow(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    let fixed = HeaderValue::from_static;
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, fixed(RESPONSE_HEADERS));
    headers.append(VARY, fixed("Origin"));
}

/// The headers of MCP clients, in both revisions of the protocol.
const REQUEST_HEADERS: &str = "accept, authorization, content-type, last-event-id, mcp-method, \
                               mcp-name, mcp-protocol-version, mcp-session-id";
/// A client finds the sign-in in the challenge, and the wait in `Retry-After`.
const RESPONSE_HEADERS: &str = "www-authenticate, mcp-session-id, retry-after";
