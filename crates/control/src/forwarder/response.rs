//! A response of an engine, forwarded as it arrives.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, StatusCode};
use hyper::body::{Body as HttpBody, Frame};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use types::problem::Problem;

use super::RequestPermit;
use super::access::LiveAccess;
use super::operation::ForwardedOperation;
use crate::http_api::problem::Refusal;

/// The response for the page. A task forwards the body until it or the access ends.
pub(super) fn forward(
    answered: reqwest::Response,
    access: LiveAccess,
    operation: ForwardedOperation,
    permit: RequestPermit,
) -> Response {
    if answered.status() == StatusCode::UNAUTHORIZED {
        // The session is valid. For the page, a 401 would mean that it is not.
        let detail = "The engine of this project has not received the sign-in yet. Try again.";
        let problem = Problem::new(503, "engine_not_ready", detail);
        return Refusal::from(problem.with_retry_after(1)).into_response();
    }
    let (sender, receiver) = mpsc::channel(QUEUE);
    let end = Arc::new(Mutex::new(BodyEnd::Interrupted));
    let body = ForwardedBody {
        receiver,
        end: Arc::clone(&end),
    };
    let mut response = Response::new(Body::new(body));
    *response.status_mut() = answered.status();
    let headers = response.headers_mut();
    for name in FORWARDED_FIELDS {
        if let Some(value) = answered.headers().get(&name) {
            headers.insert(name, value.clone());
        }
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    // Proxies in front of the platform forward each event immediately.
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    let stop = access.app.forwarder.stop.clone();
    let is_event_stream = operation.is_event_stream && answered.status() == StatusCode::OK;
    let pump = Pump {
        answered,
        sender,
        end,
        is_event_stream,
        is_between_events: true,
    };
    tokio::spawn(async move {
        pump.run(access, stop).await;
        drop(permit);
    });
    response
}

/// The task of one response. It ends with the response: when the engine has sent everything, when
/// the page disconnects, when the access ends, or when the platform stops.
struct Pump {
    answered: reqwest::Response,
    sender: mpsc::Sender<Bytes>,
    end: Arc<Mutex<BodyEnd>>,
    is_event_stream: bool,
    /// True if no event has been forwarded partly.
    is_between_events: bool,
}

impl Pump {
    async fn run(mut self, access: LiveAccess, stop: CancellationToken) {
        // One future for the whole response: a check of the access is not interrupted by chunks.
        let ended = access.ended();
        tokio::pin!(ended);
        let reason = tokio::select! {
            biased;
            () = stop.cancelled() => "the platform stops".to_owned(),
            reason = &mut ended => reason,
            () = self.forward_chunks() => return,
        };
        self.close(&reason).await;
    }

    /// Forwards until the response ends, the page disconnects, or it stops reading.
    async fn forward_chunks(&mut self) {
        loop {
            let chunk = tokio::select! {
                chunk = self.answered.chunk() => chunk,
                () = self.sender.closed() => return,
            };
            let chunk = match chunk {
                Ok(Some(chunk)) => chunk,
                Ok(None) => {
                    *self.end.lock() = BodyEnd::Complete;
                    return;
                }
                Err(_) => return,
            };
            let ends_event = chunk.ends_with(b"\n\n");
            let Ok(Ok(())) = timeout(STALL_TIMEOUT, self.sender.send(chunk)).await else {
                return;
            };
            // Not before: a chunk that is still waiting is dropped when the access ends.
            self.is_between_events = ends_event;
        }
    }

    /// Ends the response before its time.
    async fn close(self, reason: &str) {
        let Self {
            answered,
            sender,
            end,
            is_event_stream,
            is_between_events,
        } = self;
        drop(answered);
        if is_event_stream && is_between_events {
            let last = Bytes::from(format!(": closed: {reason}\n\n"));
            // The chunks before it may wait for a page that reads slowly.
            if let Ok(Ok(())) = timeout(CLOSE_TIMEOUT, sender.send(last)).await {
                *end.lock() = BodyEnd::Complete;
                return;
            }
        }
        *end.lock() = BodyEnd::AccessEnded;
    }
}

/// The body of the response.
struct ForwardedBody {
    receiver: mpsc::Receiver<Bytes>,
    end: Arc<Mutex<BodyEnd>>,
}

/// The meaning of the end of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyEnd {
    /// The engine or the page failed. Such a response must not look like a complete one.
    Interrupted,
    /// Everything was sent.
    Complete,
    /// The access has ended. Chunks in the queue are not sent any more.
    AccessEnded,
}

impl HttpBody for ForwardedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if *self.end.lock() == BodyEnd::AccessEnded {
            return Poll::Ready(Some(Err(io::Error::other("the access has ended"))));
        }
        let Poll::Ready(chunk) = self.receiver.poll_recv(context) else {
            return Poll::Pending;
        };
        let end = *self.end.lock();
        Poll::Ready(match (chunk, end) {
            (Some(chunk), _) => Some(Ok(Frame::data(chunk))),
            (None, BodyEnd::Complete) => None,
            (None, BodyEnd::Interrupted | BodyEnd::AccessEnded) => {
                Some(Err(io::Error::other("the response was interrupted")))
            }
        })
    }
}

/// Fields of the engine's response that a page may read. All others belong to the connection.
const FORWARDED_FIELDS: [HeaderName; 4] = [
    CONTENT_TYPE,
    CONTENT_DISPOSITION,
    RETRY_AFTER,
    HeaderName::from_static(api::engine::PLATFORM_LINK),
];

/// A response that a browser opens as a page can do nothing at this origin. Recordings contain text
/// of strangers.
const SANDBOX: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

/// Tells nginx and the proxies that copied it not to collect a response.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Chunks that can wait for a page that reads slowly. Each is at most as large as the HTTP library's
/// buffer.
const QUEUE: usize = 4;
/// Time limit for the last chunk. The connection of a page that reads nothing ends as well.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a page that reads nothing while chunks wait. It holds a connection to the engine.
const STALL_TIMEOUT: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn read(chunks: &[&'static str], end: BodyEnd) -> Result<String, String> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        for chunk in chunks {
            let chunk = Bytes::from_static(chunk.as_bytes());
            sender.send(chunk).await.unwrap();
        }
        drop(sender);
        let end = Arc::new(Mutex::new(end));
        let read = ForwardedBody { receiver, end }.collect().await;
        let bytes = read.map_err(|error| error.to_string())?.to_bytes();
        Ok(String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn only_a_complete_response_ends_without_an_error() {
        let chunks = ["a", "b"];
        let complete = read(&chunks, BodyEnd::Complete).await;
        assert_eq!(complete.as_deref(), Ok("ab"));
        let error = read(&chunks, BodyEnd::Interrupted).await.unwrap_err();
        assert_eq!(error, "the response was interrupted");
    }

    #[tokio::test]
    async fn waiting_chunks_are_not_sent_after_the_access_has_ended() {
        let (sender, receiver) = mpsc::channel(QUEUE);
        sender.send(Bytes::from_static(b"a")).await.unwrap();
        let end = Arc::new(Mutex::new(BodyEnd::AccessEnded));
        let mut body = ForwardedBody { receiver, end };
        let frame = body.frame().await.unwrap();
        assert_eq!(frame.unwrap_err().to_string(), "the access has ended");
    }
}
