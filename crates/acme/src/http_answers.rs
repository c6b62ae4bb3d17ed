//! A listener that only answers an authority, for services without plain HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use daemon::small_http::{Responder, SmallServer};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};

use crate::challenges::{Challenges, HTTP_CONTENT_TYPE};

/// Serves the answers to `http-01`, and 404 for everything else.
///
/// # Errors
/// The address cannot be bound.
pub async fn serve_http_answers(
    address: SocketAddr,
    challenges: Arc<Challenges>,
) -> io::Result<SmallServer> {
    SmallServer::start("http-01", address, Arc::new(HttpAnswers(challenges))).await
}

struct HttpAnswers(Arc<Challenges>);

impl Responder for HttpAnswers {
    fn respond(&self, request: &Parts) -> Response<Bytes> {
        let is_read = [Method::GET, Method::HEAD].contains(&request.method);
        let answer = is_read.then(|| self.0.http_answer(request.uri.path()));
        let (status, kind, body) = match answer.flatten() {
            Some(answer) => (StatusCode::OK, HTTP_CONTENT_TYPE, Bytes::from(answer)),
            None => (
                StatusCode::NOT_FOUND,
                "text/plain; charset=utf-8",
                Bytes::from_static(b"not found\n"),
            ),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let kind = HeaderValue::from_static(kind);
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    fn max_per_source(&self) -> usize {
        MAX_PER_SOURCE
    }
}

/// An authority validates each name from some addresses, with one request from each.
const MAX_PER_SOURCE: usize = 8;

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn only_the_answer_of_a_pending_order_is_served() {
        let challenges = Arc::<Challenges>::default();
        let answers = HttpAnswers(Arc::clone(&challenges));
        let get = |method: Method, path: &str| {
            let request = Request::builder().method(method).uri(path);
            let (head, ()) = request.body(()).unwrap().into_parts();
            let response = answers.respond(&head);
            (response.status().as_u16(), response.into_body())
        };
        let path = "/.well-known/acme-challenge/token";
        assert_eq!(get(Method::GET, path).0, 404);
        let pending = challenges.answer_http("token".to_owned(), "token.thumb".to_owned());
        assert_eq!(
            get(Method::GET, path),
            (200, Bytes::from_static(b"token.thumb"))
        );
        assert_eq!(get(Method::POST, path).0, 404);
        for other in ["/", "/token", "/.well-known/acme-challenge/other"] {
            assert_eq!(get(Method::GET, other).0, 404, "{other}");
        }
        drop(pending);
        assert_eq!(get(Method::GET, path).0, 404);
    }
}
