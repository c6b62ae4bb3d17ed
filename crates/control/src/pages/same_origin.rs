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
use http::{HeaderMap, Method, header};
use types::problem::Problem;

use super::layout::PageRefusal;
use crate::app::App;
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

fn is_api(path: &str) -> bool {
    path.starts_with("/api/")
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

/// True if the browser confirms that the request is from the origin `base_url` itself.
///
/// `base_url` is `scheme://host[:port]`, without a path. False if neither header is present. A
/// client that is not a browser uses a bearer token.
pub fn is_same_origin(headers: &HeaderMap, base_url: &str) -> bool {
    let site = one(headers, "sec-fetch-site");
    let origin = one(headers, header::ORIGIN.as_str());
    match (site, origin) {
        (OriginEvidence::Repeated, _) | (_, OriginEvidence::Repeated) => false,
        (OriginEvidence::Absent, OriginEvidence::Absent) => false,
        (OriginEvidence::Absent, OriginEvidence::Single(origin)) => origin == base_url.as_bytes(),
        (OriginEvidence::Single(site), OriginEvidence::Absent) => site == b"same-origin",
        (OriginEvidence::Single(site), OriginEvidence::Single(origin)) => {
            site == b"same-origin" && origin == base_url.as_bytes()
        }
    }
}

/// Response to a write from another origin.
pub fn refusal() -> Problem {
    let detail = "This request was not sent from a page of this platform. Open the page again.";
    Problem::new(403, "foreign_origin", detail)
}

enum OriginEvidence<'a> {
    Absent,
    Single(&'a [u8]),
    Repeated,
}

fn one<'a>(headers: &'a HeaderMap, name: &str) -> OriginEvidence<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => OriginEvidence::Absent,
        (Some(value), None) => OriginEvidence::Single(value.as_bytes()),
        (Some(_), Some(_)) => OriginEvidence::Repeated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(fields: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        is_same_origin(&headers, "https://svc.example")
    }

    #[test]
    fn a_form_of_the_platform_is_accepted() {
        assert!(same(&[
            ("sec-fetch-site", "same-origin"),
            ("origin", "https://svc.example")
        ]));
        assert!(same(&[("sec-fetch-site", "same-origin")]));
        assert!(same(&[("origin", "https://svc.example")]));
    }

    #[test]
    fn anything_else_is_refused() {
        for fields in [
            &[][..],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            // A bookmark or a typed address does not submit a form.
            &[("sec-fetch-site", "none")],
            &[("origin", "null")],
            &[("origin", "https://svc.example.evil.example")],
            &[("origin", "http://svc.example")],
            &[("origin", "https://svc.example:8443")],
            &[
                ("sec-fetch-site", "cross-site"),
                ("origin", "https://svc.example"),
            ],
            &[
                ("sec-fetch-site", "same-origin"),
                ("origin", "https://evil.example"),
            ],
            &[
                ("origin", "https://svc.example"),
                ("origin", "https://evil.example"),
            ],
            &[
                ("sec-fetch-site", "same-origin"),
                ("sec-fetch-site", "cross-site"),
            ],
            &[("referer", "https://svc.example/login")],
        ] {
            assert!(!same(fields), "{fields:?}");
        }
    }
}
