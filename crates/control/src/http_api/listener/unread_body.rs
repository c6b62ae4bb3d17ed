//! The part of a request body that a handler does not read.
//!
//! Hyper closes a connection of HTTP/1.1 if the rest of a body has not arrived when its response is
//! sent, and the response does not announce it. The client would lose its next request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::header::{CONNECTION, EXPECT};
use http::{HeaderValue, StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;

/// Reads the rest of the request body before the response, or announces the end of the connection.
pub(super) async fn read_rest(request: Request, next: Next) -> Response {
    // A stream of HTTP/2 ends alone.
    if request.version() >= Version::HTTP_2 || request.body().is_end_stream() {
        return next.run(request).await;
    }
    // A client that waits for an interim response has not sent its body.
    let is_awaited = request.headers().contains_key(EXPECT);
    let rest = Arc::new(Mutex::new(None));
    let request = request.map(|body| {
        Body::new(ReturnedBody {
            body: Some(body),
            rest: Arc::clone(&rest),
        })
    });
    let mut response = next.run(request).await;
    let Some(rest) = rest.lock().take() else {
        return response;
    };
    let is_read = !is_awaited && timeout(MAX_TIME, discard(rest)).await == Ok(true);
    if !is_read && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

/// Returns true if the body has ended within its limit.
async fn discard(mut body: Body) -> bool {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return false;
        };
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > MAX_BYTES {
            return false;
        }
    }
    true
}

/// A body that is returned when it is dropped before its end.
struct ReturnedBody {
    /// `None` after its end.
    body: Option<Body>,
    rest: Arc<Mutex<Option<Body>>>,
}

impl HttpBody for ReturnedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            this.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.as_ref().map(HttpBody::size_hint);
        hint.unwrap_or_else(|| SizeHint::with_exact(0))
    }
}

impl Drop for ReturnedBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *self.rest.lock() = Some(body);
        }
    }
}

/// Longest rest that is read, in bytes: the largest body of most operations. Closing the connection
/// costs a client less than sending more.
const MAX_BYTES: usize = 64 * 1024;
/// Time for the rest. It is usually on its way, in the packet after the head.
const MAX_TIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware::from_fn;
    use axum::response::IntoResponse as _;
    use hyper::server::conn::http1;
    use hyper_util::rt::TokioIo;
    use hyper_util::service::TowerToHyperService;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// Reads its request's body, or refuses it unread.
    async fn respond(request: Request) -> Response {
        if request.uri().path() == "/read" {
            return Response::new(request.into_body());
        }
        StatusCode::UNAUTHORIZED.into_response()
    }

    fn client() -> DuplexStream {
        let (client, server) = duplex(256 * 1024);
        let router = Router::new().fallback(respond).layer(from_fn(read_rest));
        let service = TowerToHyperService::new(router);
        tokio::spawn(async move {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(server), service);
            connection.await.ok();
        });
        client
    }

    async fn head(client: &mut DuplexStream) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        String::from_utf8(head).unwrap().to_lowercase()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_used_again_after_a_body_that_arrives_late() {
        let mut client = client();
        for path in ["/refuse", "/read", "/refuse"] {
            let start = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n");
            client.write_all(start.as_bytes()).await.unwrap();
            // The clock is only moved when every task waits, so the handler has ended by then.
            tokio::time::advance(MAX_TIME / 2).await;
            client.write_all(b"body").await.unwrap();
            let head = head(&mut client).await;
            assert!(!head.contains("connection: close"), "{head}");
            if path == "/read" {
                let mut body = [0; 4];
                client.read_exact(&mut body).await.unwrap();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_body_does_not_arrive_is_closed_with_notice() {
        for fields in [
            "Content-Length: 4\r\n",
            "Content-Length: 4\r\nExpect: 100-continue\r\n",
        ] {
            let mut client = client();
            let start = format!("POST /refuse HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            client.write_all(start.as_bytes()).await.unwrap();
            let head = head(&mut client).await;
            assert!(head.starts_with("http/1.1 401 "), "{head}");
            assert!(head.contains("connection: close"), "{head}");
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        }
    }

    #[tokio::test]
    async fn a_long_body_is_not_read() {
        let mut client = client();
        let bytes = 2 * MAX_BYTES;
        let start = format!("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n");
        client.write_all(start.as_bytes()).await.unwrap();
        client.write_all(&vec![b'x'; bytes]).await.unwrap();
        let head = head(&mut client).await;
        assert!(head.contains("connection: close"), "{head}");
    }
}
