//! CORS: only the platform's own pages may call the Engine API of its projects.
//!
//! No cookie is read here: a page sends a token that it has. CORS only determines the responses
//! that a page may read.
//!
//! Stricter than the layer of `tower-http`: a request with several origins gets no permission, and
//! the response to any other origin is the one of a request without CORS.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};

use super::Api;
use crate::live::LoadMetric;

/// Responds to preflight requests of browsers for the platform's page (the Fetch standard, 3.2.2),
/// and allows that page to read the responses.
pub(super) async fn allow_platform_origin<A: LoadMetric>(
    State(api): State<Arc<Api<A>>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(origin) = api.platform_origin(request.headers()) else {
        return next.run(request).await;
    };
    let asks = request
        .headers()
        .contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks && request.method() == Method::OPTIONS {
        let allowed = [
            (ACCESS_CONTROL_ALLOW_METHODS, METHODS),
            (ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
            (ACCESS_CONTROL_MAX_AGE, MAX_AGE),
        ];
        (StatusCode::NO_CONTENT, allowed).into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    if !headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
    response
}

impl<A> Api<A> {
    /// The origin of a request, if there is exactly one and it is the platform's.
    fn platform_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut origins = headers.get_all(ORIGIN).iter();
        let (origin, None) = (origins.next()?, origins.next()) else {
            return None;
        };
        let platform = self.tenancy.directory()?.platform()?;
        let is_platform = origin_of(&platform.base_url)? == origin.to_str().ok()?;
        is_platform.then(|| origin.clone())
    }
}

/// The origin of an address as browsers write it (RFC 6454, 6.2): without a default port.
fn origin_of(address: &str) -> Option<String> {
    let address: Uri = address.parse().ok()?;
    let (scheme, authority) = (address.scheme_str()?, address.authority()?);
    let host = authority.host().to_ascii_lowercase();
    let default = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    Some(match authority.port_u16() {
        Some(port) if port != default => format!("{scheme}://{host}:{port}"),
        _ => format!("{scheme}://{host}"),
    })
}

const METHODS: &str = "GET, POST, DELETE";
const HEADERS: &str = "authorization, content-type";
/// Seconds for which a browser may cache the preflight: short enough that a platform can move.
const MAX_AGE: &str = "600";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_write_it() {
        for (address, origin) in [
            ("https://Svc.example", Some("https://svc.example")),
            ("https://svc.example:443/", Some("https://svc.example")),
            ("http://127.0.0.1:8080/x", Some("http://127.0.0.1:8080")),
            ("svc.example", None),
            ("ftp://svc.example", None),
        ] {
            assert_eq!(origin_of(address).as_deref(), origin, "{address}");
        }
    }
}
