//! What browsers may read from elsewhere: metadata, keys, and the endpoints without credentials.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ALLOW,
};
use http::{HeaderValue, Method, StatusCode};

/// Lets pages of any origin read the answers, without credentials (Fetch, "CORS protocol"): an MCP
/// client that is a web page redeems its code itself. Nothing here looks at cookies, so a page
/// gets no more than a program would.
pub(crate) async fn any_origin(request: Request, next: Next) -> Response {
    let asks_first = request.method() == Method::OPTIONS;
    let mut response = if asks_first {
        let mut response = Response::default();
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        let fixed = HeaderValue::from_static;
        headers.insert(ALLOW, fixed(METHODS));
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, fixed(METHODS));
        // MCP clients send the version of their protocol with each request.
        let names = "authorization, content-type, mcp-protocol-version";
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, fixed(names));
        headers.insert(ACCESS_CONTROL_MAX_AGE, fixed("3600"));
        response
    } else {
        next.run(request).await
    };
    response
        .headers_mut()
        .insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

const METHODS: &str = "GET, POST, OPTIONS";
