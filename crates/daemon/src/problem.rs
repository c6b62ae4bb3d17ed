//! Conversion of a problem to an HTTP response: status, body, headers.

use axum::response::{IntoResponse, Response};
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE,
    WWW_AUTHENTICATE,
};
use http::{HeaderValue, StatusCode};
use types::problem::{MEDIA_TYPE, Problem};

/// The response to a refused request, for any body type that can be created from a text.
///
/// `resource_metadata` is the address that the challenge of a 401 and 403 names (RFC 9728 section
/// 5.1), if the service has one. A 405 without allowed methods still needs its `Allow`, which only
/// the router can add.
pub fn response<B: From<String>>(
    problem: &Problem,
    resource_metadata: Option<&str>,
) -> http::Response<B> {
    let mut response = http::Response::new(B::from(problem.to_json()));
    // A status that HTTP does not have is a defect of this program.
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    // A refusal depends on the credential and on the time, so it must not be cached.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let challenge = problem.www_authenticate(resource_metadata);
    if let Some(challenge) = challenge.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(WWW_AUTHENTICATE, challenge);
    }
    if let Some(seconds) = problem.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(methods) = problem.allow {
        headers.insert(ALLOW, HeaderValue::from_static(methods));
    }
    // RFC 9110 section 15.5.22: a 426 names the protocol, which is always WebSocket here.
    if problem.status == 426 {
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        // RFC 6455 section 4.4.
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    }
    response
}

/// A problem as the error of an axum handler: `Result<T, Refusal>` with `?`. Boxed, so that
/// successful results stay small.
#[derive(Debug)]
pub struct Refusal(Box<Problem>);

impl<P: Into<Problem>> From<P> for Refusal {
    fn from(problem: P) -> Self {
        Self(Box::new(problem.into()))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        response(&self.0, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header<'a>(response: &'a http::Response<String>, name: &str) -> Option<&'a str> {
        response
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap())
    }

    #[test]
    fn a_problem_carries_its_status_type_and_body() {
        let problem = Problem::invalid_request("limit is too large").with_field("limit");
        let response: http::Response<String> = response(&problem, None);
        assert_eq!(response.status(), 400);
        assert_eq!(
            header(&response, "content-type"),
            Some("application/problem+json")
        );
        assert_eq!(header(&response, "cache-control"), Some("no-store"));
        assert_eq!(header(&response, "www-authenticate"), None);
        let body: serde_json::Value = serde_json::from_str(response.body()).unwrap();
        assert_eq!(body["code"], "invalid_request");
        assert_eq!(body["error"], "limit is too large");
        assert_eq!(body["field"], "limit");
    }

    #[test]
    fn a_401_and_a_403_carry_a_challenge() {
        let metadata = "https://example.com/.well-known/oauth-protected-resource";
        let missing: http::Response<String> = response(&Problem::unauthenticated(), Some(metadata));
        let challenge = header(&missing, "www-authenticate").unwrap();
        assert!(challenge.starts_with("Bearer ") && !challenge.contains("error="));
        assert!(challenge.contains(metadata));
        let narrow = Problem::insufficient_scope("tunnels.resources.read-only");
        let narrow: http::Response<String> = response(&narrow, None);
        assert_eq!(narrow.status(), 403);
        let challenge = header(&narrow, "www-authenticate").unwrap();
        assert!(challenge.contains("scope=\"tunnels.resources.read-only\""));
    }

    #[test]
    fn a_503_has_retry_after_and_a_426_the_protocol() {
        let offline: http::Response<String> = response(&Problem::tunnel_offline(5), None);
        assert_eq!(header(&offline, "retry-after"), Some("5"));
        let upgrade: http::Response<String> = response(&Problem::upgrade_required(), None);
        assert_eq!(header(&upgrade, "upgrade"), Some("websocket"));
        assert_eq!(header(&upgrade, "connection"), Some("upgrade"));
        assert_eq!(header(&upgrade, "sec-websocket-version"), Some("13"));
    }

    #[test]
    fn a_405_has_allow_if_the_methods_are_known() {
        let refused = Problem::only_allowed("GET, HEAD");
        let refused: http::Response<String> = response(&refused, None);
        assert_eq!(header(&refused, "allow"), Some("GET, HEAD"));
    }

    #[test]
    fn an_impossible_status_becomes_an_internal_error() {
        let response: http::Response<String> = response(&Problem::new(7, "x", "x"), None);
        assert_eq!(response.status(), 500);
    }

    #[test]
    fn a_handler_refuses_with_a_question_mark() {
        fn handler() -> Result<(), Refusal> {
            Err(Problem::not_found())?
        }
        assert_eq!(handler().unwrap_err().into_response().status(), 404);
    }
}
