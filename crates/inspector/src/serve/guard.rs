//! Access checks of the page and its API.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::Response,
};
use subtle::ConstantTimeEq as _;

use super::api::ApiError;

/// Refuses requests from other sites, and requests with a foreign host name. The owner of a name
/// could point it here, and a page there would then have the same origin.
pub(super) async fn same_site(request: Request, next: Next) -> Result<Response, ApiError> {
    let headers = request.headers();
    let host = text(headers, header::HOST).unwrap_or_default();
    if !is_local_name(host) {
        return Err(ApiError::new(
            StatusCode::MISDIRECTED_REQUEST,
            "host_refused",
            "open the inspector by its address, or as localhost",
        ));
    }
    let origin = text(headers, header::ORIGIN);
    let foreign_origin = origin.is_some_and(|origin| origin != format!("http://{host}"));
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_navigation =
        headers.get("sec-fetch-mode").map(HeaderValue::as_bytes) == Some(b"navigate");
    // A link on another site may open the page, which shows nothing without the token.
    let foreign_site = site.is_some_and(|site| site != b"same-origin" && site != b"none");
    if foreign_origin || (foreign_site && !is_navigation) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "cross_site",
            "the inspector refuses requests from other sites",
        ));
    }
    Ok(next.run(request).await)
}

/// Refuses requests without the token of this run.
pub(super) async fn token(
    State(state): State<Arc<super::State>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let shown = text(request.headers(), header::AUTHORIZATION)
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    if !bool::from(shown.as_bytes().ct_eq(state.token.as_bytes())) {
        return Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "open the complete address that svc printed; it ends with the token of this run",
        ));
    }
    Ok(next.run(request).await)
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// An address, or `localhost`; with any port, because the port may be forwarded.
fn is_local_name(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_name_this_server() {
        for (host, local) in [
            ("127.0.0.1:4040", true),
            ("localhost:4040", true),
            ("[::1]:4040", true),
            ("192.168.1.5:4040", true),
            ("evil.example:4040", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.nip.io:4040", false),
            ("", false),
        ] {
            assert_eq!(is_local_name(host), local, "{host}");
        }
    }
}
