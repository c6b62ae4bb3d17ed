//! CORS for pages of other origins: they may read metadata, keys, and the endpoints that need no
//! cookies.
//!
//! Stricter than the layer of `tower-http`, which answers `OPTIONS` for every path with status 200.

use api::control::oauth::{MCP, MCP_SIGN_IN};
use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::options;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
    VARY,
};
use http::{HeaderValue, Method, StatusCode};

use super::Clients;

/// Lets pages of any origin read the answers of these routes, without credentials (Fetch, "CORS
/// protocol"): an MCP client that is a web page redeems its code itself. Nothing here reads
/// cookies, so a page gets no more than a program would.
pub(crate) fn for_any_origin<S>(routes: Router<S>, paths: &[&str]) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    paths
        .iter()
        .fold(routes, |routes, path| {
            routes.route(path, options(preflight))
        })
        .layer(middleware::from_fn(allow))
}

async fn preflight() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let fixed = HeaderValue::from_static;
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, fixed("GET, POST"));
    // MCP clients send their protocol version with each request.
    let names = "authorization, content-type, mcp-protocol-version";
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, fixed(names));
    headers.insert(ACCESS_CONTROL_MAX_AGE, fixed("3600"));
    response
}

async fn allow(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    allow_any_origin(&mut response);
    response
}

/// Lets pages of any origin read this response.
pub(super) fn allow_any_origin(response: &mut Response) {
    response
        .headers_mut()
        .insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
}

/// A page of a configured origin that calls an MCP endpoint. The endpoint sets the fields for it,
/// but not in a response that precedes the endpoint.
#[derive(Debug)]
pub(crate) struct McpPage(HeaderValue);

impl McpPage {
    /// The page that sent a request; `None` for other pages and other paths.
    pub(crate) fn of_request(request: &Request, clients: &Clients) -> Option<Self> {
        if ![MCP, MCP_SIGN_IN].contains(&request.uri().path()) {
            return None;
        }
        let mut origins = request.headers().get_all(ORIGIN).iter();
        let (origin, None) = (origins.next()?, origins.next()) else {
            return None;
        };
        let mut listed = clients.origins();
        // Byte for byte, as the endpoint compares.
        let is_listed = listed.any(|listed| origin == listed.as_str());
        is_listed.then(|| Self(origin.clone()))
    }

    /// Lets the page read a refusal, and when to try again.
    pub(crate) fn allow(self, response: &mut Response) {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.0);
        let readable = HeaderValue::from_static("retry-after");
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, readable);
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
}

/// True for the preflight of a page's request (Fetch, "CORS-preflight fetch").
pub(crate) fn is_preflight(request: &Request) -> bool {
    *request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}
