//! The listener for plain HTTP. It redirects to the address of the platform, and answers the authority
//! of a pending certificate.

use std::sync::Arc;

use acme::Challenges;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_TYPE, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, StatusCode};
use types::problem::Problem;
use types::query_credential;

use crate::http_api::problem::Refusal;

#[derive(Debug)]
struct PlainSite {
    base_url: String,
    challenges: Option<Arc<Challenges>>,
}

/// The routes of the listener.
pub(crate) fn routes(base_url: String, challenges: Option<Arc<Challenges>>) -> Router {
    let site = PlainSite {
        base_url,
        challenges,
    };
    Router::new().fallback(answer).with_state(Arc::new(site))
}

/// Redirects only requests that a browser repeats without a body, and without a token that was
/// already sent unencrypted. The target has the configured address, whatever `Host` is.
async fn answer(State(site): State<Arc<PlainSite>>, request: Request) -> Response {
    let refuse = |problem: Problem| Refusal::from(problem).into_response();
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return refuse(Problem::https_required());
    }
    let uri = request.uri();
    let challenges = site.challenges.as_ref();
    if let Some(answer) = challenges.and_then(|answers| answers.http_answer(uri.path())) {
        return ([(CONTENT_TYPE, acme::HTTP_CONTENT_TYPE)], answer).into_response();
    }
    let query = uri.query().unwrap_or_default();
    if query_credential::is_present(query, query_credential::COMPAT_NAMES) {
        return refuse(Problem::token_in_clear());
    }
    let target = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    match HeaderValue::from_str(&format!("{}{target}", site.base_url)) {
        Ok(location) => (StatusCode::PERMANENT_REDIRECT, [(LOCATION, location)]).into_response(),
        Err(_) => refuse(Problem::https_required()),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt as _;

    use super::*;

    /// The status, and the target of a redirect.
    async fn ask(method: Method, target: &str) -> (u16, Option<String>) {
        let request = http::Request::builder().method(method).uri(target);
        let request = request.header("host", "other.example");
        let request = request.body(Body::empty()).unwrap();
        let routes = routes("https://svc.example".to_owned(), None);
        let response = routes.oneshot(request).await.unwrap();
        let location = response.headers().get(LOCATION);
        let location = location.map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), location)
    }

    #[tokio::test]
    async fn only_harmless_requests_are_redirected_and_only_to_the_platform() {
        for (target, location) in [
            ("/", "https://svc.example/"),
            ("/a/b?c=d", "https://svc.example/a/b?c=d"),
            ("//evil.example/", "https://svc.example//evil.example/"),
            ("http://evil.example/a", "https://svc.example/a"),
            (
                "/.well-known/acme-challenge/token",
                "https://svc.example/.well-known/acme-challenge/token",
            ),
        ] {
            for method in [Method::GET, Method::HEAD] {
                let redirected = (308, Some(location.to_owned()));
                assert_eq!(ask(method, target).await, redirected, "{target}");
            }
        }
        assert_eq!(ask(Method::POST, "/login").await, (403, None));
        assert_eq!(ask(Method::GET, "/?svc.token=a.b.c").await, (400, None));
    }
}
