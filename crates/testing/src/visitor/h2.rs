//! An HTTP/2 visitor.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::answer::ReceivedResponse;
use crate::within;

/// A request body of any kind.
pub type H2Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// One HTTP/2 connection of a visitor. Clones share it.
#[derive(Clone)]
pub struct H2Visitor {
    sender: SendRequest<H2Body>,
    /// Drives the connection.
    _connection: Arc<JoinSet<()>>,
}

impl H2Visitor {
    /// Opens HTTP/2 over a stream, on which TLS has already negotiated `h2`.
    pub async fn over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        let io = TokioIo::new(stream);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io)
            .await
            .expect("an HTTP/2 connection");
        let mut task = JoinSet::new();
        task.spawn(async move {
            // Errors of the connection are reported to the requests.
            connection.await.ok();
        });
        Self {
            sender,
            _connection: Arc::new(task),
        }
    }

    /// Sends a request and returns the head of the response. The uri must be absolute.
    pub async fn send(&mut self, request: Request<H2Body>) -> hyper::Result<Response<Incoming>> {
        self.sender.ready().await?;
        within("answer from the edge", self.sender.send_request(request)).await
    }

    /// Sends a GET and returns the response with its body.
    pub async fn get(&mut self, target: &str, host: &str) -> ReceivedResponse {
        self.try_get(target, host).await.expect("an answer")
    }

    /// Sends a GET and returns the response with its body, or the reset of the stream before the
    /// head.
    pub async fn try_get(&mut self, target: &str, host: &str) -> hyper::Result<ReceivedResponse> {
        let request = Request::get(format!("https://{host}{target}"));
        let request = request.body(Self::empty()).expect("a request");
        Ok(Self::collect(self.send(request).await?).await)
    }

    /// Reads the body of a response as far as it arrives.
    pub async fn collect(response: Response<Incoming>) -> ReceivedResponse {
        let (head, mut body) = response.into_parts();
        let mut answer = ReceivedResponse {
            status: head.status.as_u16(),
            headers: pairs(&head.headers),
            body: Vec::new(),
            trailers: Vec::new(),
            is_complete: true,
        };
        while let Some(frame) = within("frame from the edge", body.frame()).await {
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(data)) => answer.body.extend_from_slice(&data),
                Ok(Err(other)) => answer
                    .trailers
                    .extend(other.trailers_ref().map(pairs).unwrap_or_default()),
                Err(_broken) => {
                    // The body would return the same error forever.
                    answer.is_complete = false;
                    break;
                }
            }
        }
        answer
    }

    /// Opens a WebSocket with extended CONNECT (RFC 8441).
    ///
    /// The connection must already have received a response: only then is it certain that the
    /// server's settings, which allow this, have arrived.
    pub async fn websocket(
        &mut self,
        target: &str,
        host: &str,
    ) -> Result<(Response<()>, TokioIo<Upgraded>), StatusCode> {
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri(format!("https://{host}{target}"))
            .version(Version::HTTP_2)
            .extension(Protocol::from_static("websocket"))
            .header("sec-websocket-version", "13")
            .body(Self::empty())
            .expect("a request");
        let mut response = self.send(request).await.expect("an answer");
        if response.status() != StatusCode::OK {
            return Err(response.status());
        }
        let upgraded = hyper::upgrade::on(&mut response).await.expect("an upgrade");
        Ok((response.map(drop), TokioIo::new(upgraded)))
    }

    /// No body.
    pub fn empty() -> H2Body {
        Empty::new().map_err(|never| match never {}).boxed_unsync()
    }

    /// A body of known bytes.
    pub fn full(bytes: impl Into<Bytes>) -> H2Body {
        Full::new(bytes.into())
            .map_err(|never| match never {})
            .boxed_unsync()
    }
}

fn pairs(fields: &hyper::HeaderMap) -> Vec<(String, String)> {
    fields
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        })
        .collect()
}
