//! One request on a shared HTTP/2 connection to a service.
//!
//! The client of hyper does not report interim responses, so `h2` is used directly.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::http2::StreamPermit;
use crate::edge::http1::exchange::InterimCount;
use crate::edge::http2::body::RequestBodyError;
use crate::edge::http2::body_sender::BodySender;
use crate::edge::http2::held_body::HeldBody;

/// A request, until its final response.
pub(in crate::edge) struct Http2Exchange {
    send: SendRequest<Bytes>,
    /// Sends the body. The response may begin, and end, before that.
    runtime: Handle,
    /// `None` after it was sent.
    request: Option<Request<HeldBody>>,
    response: Option<ResponseFuture>,
    /// Ends the sending of the body if the exchange is abandoned.
    upload: Option<DropGuard>,
    interim: InterimCount,
}

/// A response of a service.
pub(in crate::edge) enum ServiceResponse {
    /// An interim response (RFC 9110, 15.2). The final one follows.
    Interim(Response<()>),
    Final(Response<ServiceBody>),
}

/// Reason why there is no final response.
#[derive(Debug, thiserror::Error)]
pub(in crate::edge) enum Http2ResponseError {
    #[error(transparent)]
    Stream(#[from] h2::Error),
    #[error("the service sent an invalid response: {0}")]
    Invalid(&'static str),
}

/// True if a stream has failed because of the service or its connection, and false if the edge has
/// reset it, for a visitor that aborted the request.
pub(in crate::edge) fn is_service_failure(error: &h2::Error) -> bool {
    !error.is_reset() || error.is_remote() || error.is_library()
}

impl Http2ResponseError {
    /// Records the failure of a request on its connection, unless the visitor has aborted it.
    pub(in crate::edge) fn record(&self, permit: &StreamPermit) {
        let is_failure = match self {
            Self::Stream(error) => is_service_failure(error),
            Self::Invalid(_) => true,
        };
        if is_failure {
            permit.record_failure();
        }
    }

    /// True if the connection has failed, and the agent reports that only its first `before` bytes
    /// reached the service, which precede the request.
    pub(in crate::edge) async fn is_undelivered(&self, permit: &StreamPermit, before: u64) -> bool {
        let is_of_connection = matches!(self, Self::Stream(error) if !error.is_reset());
        is_of_connection && permit.is_undelivered(before).await
    }
}

impl Http2Exchange {
    pub(in crate::edge) fn new(
        send: SendRequest<Bytes>,
        runtime: &Handle,
        request: Request<HeldBody>,
    ) -> Self {
        Self {
            send,
            runtime: runtime.clone(),
            request: Some(request),
            response: None,
            upload: None,
            interim: InterimCount::default(),
        }
    }

    /// Ready when the request can be sent.
    ///
    /// # Errors
    /// The connection has ended, or accepts no more requests.
    pub(in crate::edge) fn poll_ready(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), h2::Error>> {
        self.send.poll_ready(cx)
    }

    /// Sends the request, and waits for the next response. Not called after the final one.
    ///
    /// # Errors
    /// The stream or its connection has failed, or the service sent too many interim responses.
    pub(in crate::edge) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ServiceResponse, Http2ResponseError>> {
        if self.request.is_some() {
            ready!(self.send.poll_ready(cx))?;
        }
        if let Some(request) = self.request.take() {
            self.response = Some(self.start(request)?);
        }
        let Some(response) = &mut self.response else {
            return Poll::Pending;
        };
        while let Some(interim) = ready!(response.poll_informational(cx)) {
            let interim = interim?;
            let counted = self.interim.add(size(interim.headers()));
            counted.map_err(Http2ResponseError::Invalid)?;
            // HTTP/2 has no 101 (RFC 9113, 8.6).
            if interim.status() != StatusCode::SWITCHING_PROTOCOLS {
                return Poll::Ready(Ok(ServiceResponse::Interim(interim)));
            }
        }
        // Nothing is waiting in front of the final response.
        let response = ready!(Pin::new(response).poll(cx))?;
        let upload = self.upload.take();
        let length = length(response.headers());
        let response = response.map(|stream| ServiceBody::new(stream, length, upload));
        Poll::Ready(Ok(ServiceResponse::Final(response)))
    }

    /// True if the request, which has failed, was not sent, or if the service reports that it has not
    /// processed it (RFC 9113, 8.7).
    pub(in crate::edge) fn is_unprocessed(&self, error: &Http2ResponseError) -> bool {
        let Http2ResponseError::Stream(error) = error else {
            return false;
        };
        let is_refused = error.reason() == Some(Reason::REFUSED_STREAM);
        // Without this, the connection has accepted no request.
        self.response.is_none() || (error.is_remote() && (error.is_go_away() || is_refused))
    }

    /// Sends the head, and starts to send the body.
    fn start(&mut self, request: Request<HeldBody>) -> Result<ResponseFuture, h2::Error> {
        let (mut head, body) = request.into_parts();
        let is_whole = body.is_end_stream();
        let has_meaning = ![Method::GET, Method::HEAD, Method::DELETE].contains(&head.method);
        if is_whole && has_meaning {
            // RFC 9110, 8.6.
            let none = HeaderValue::from_static("0");
            head.headers.entry(CONTENT_LENGTH).or_insert(none);
        }
        let request = Request::from_parts(head, ());
        let (response, stream) = self.send.send_request(request, is_whole)?;
        if !is_whole {
            let abandoned = CancellationToken::new();
            self.upload = Some(abandoned.clone().drop_guard());
            let sender = BodySender::new(stream, body, reset_code);
            self.runtime.spawn(send_body(sender, abandoned));
        }
        Ok(response)
    }
}

/// Sends a body until it ends, the stream or its connection ends, or the exchange is abandoned: a
/// body that waits for the service's window does not read the visitor's end. An error of the
/// visitor comes first, because the service gets its code.
async fn send_body(mut sender: BodySender<HeldBody>, abandoned: CancellationToken) {
    tokio::select! {
        biased;
        () = &mut sender => {}
        () = abandoned.cancelled() => {}
    }
}

/// Size of a head in HTTP/1.1, about.
fn size(headers: &HeaderMap) -> usize {
    const STATUS_LINE: usize = 16;
    const SEPARATORS: usize = 4;
    let fields = headers.iter();
    let sizes = fields.map(|(name, value)| name.as_str().len() + value.len() + SEPARATORS);
    STATUS_LINE + sizes.sum::<usize>()
}

/// The announced length of a body.
fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The error code for the service's stream.
fn reset_code(error: &RequestBodyError) -> Reason {
    match error {
        RequestBodyError::Reset(error) => error.reason().unwrap_or(Reason::INTERNAL_ERROR),
        RequestBodyError::Incomplete => Reason::INTERNAL_ERROR,
    }
}

/// The body of a response. `h2` compares its length with `Content-Length`. After the end, a reset
/// is not an error: a service may not need the rest of the request (RFC 9113, 8.1).
#[derive(Debug)]
pub(in crate::edge) struct ServiceBody {
    stream: RecvStream,
    /// Ends the sending of the request if this is dropped before its end.
    upload: Option<DropGuard>,
    /// The data has ended, and trailers may follow.
    data_ended: bool,
    /// Missing bytes of the announced length. If the connection fails before the end of the request,
    /// `h2` does not know any more whether it had received the end of the response.
    missing: Option<u64>,
}

impl ServiceBody {
    fn new(stream: RecvStream, length: Option<u64>, upload: Option<DropGuard>) -> Self {
        Self {
            stream,
            upload,
            data_ended: false,
            missing: length,
        }
    }
}

impl Drop for ServiceBody {
    fn drop(&mut self) {
        // A service may respond before it has read the whole request.
        if self.stream.is_end_stream()
            && let Some(upload) = self.upload.take()
        {
            upload.disarm();
        }
    }
}

impl Body for ServiceBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let this = self.get_mut();
        if !this.data_ended {
            match ready!(this.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    // The caller holds one frame at a time, so the service may send the next one.
                    // An error means that the stream has ended.
                    this.stream.flow_control().release_capacity(data.len()).ok();
                    this.missing = this
                        .missing
                        .map(|missing| missing.saturating_sub(data.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(_)) if this.missing == Some(0) => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => this.data_ended = true,
            }
        }
        match ready!(this.stream.poll_trailers(cx)) {
            Ok(trailers) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::time::Duration;

    use h2::server;
    use tokio::io::DuplexStream;
    use tokio::sync::{Notify, mpsc};
    use tokio::time::timeout;

    use super::*;
    use crate::edge::http2::body::{BodyFrame, CountingBody, RequestBody};

    /// More than the window of a stream.
    const PIECE: &[u8] = &[b'x'; 100_000];

    async fn connect() -> (SendRequest<Bytes>, server::Connection<DuplexStream, Bytes>) {
        let (near, far) = tokio::io::duplex(256 * 1024);
        let (client, server) = tokio::join!(h2::client::handshake(near), server::handshake(far));
        let (send, connection) = client.unwrap();
        tokio::spawn(connection);
        (send, server.unwrap())
    }

    async fn next_frame(body: &mut ServiceBody) -> Option<Result<Frame<Bytes>, h2::Error>> {
        poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
    }

    /// A service may reset a stream without an error also before the end of its response.
    #[tokio::test]
    async fn a_response_without_its_end_is_incomplete() {
        for is_complete in [true, false] {
            let (send, mut server) = connect().await;
            let received = Arc::new(Notify::new());
            let is_received = Arc::clone(&received);
            let service = tokio::spawn(async move {
                let (_request, mut answer) = server.accept().await.unwrap().unwrap();
                let mut body = answer.send_response(Response::new(()), false).unwrap();
                body.send_data(Bytes::from_static(b"part"), is_complete)
                    .unwrap();
                tokio::select! {
                    _ = server.accept() => {}
                    () = is_received.notified() => {}
                }
                body.send_reset(Reason::NO_ERROR);
                server.accept().await.is_none()
            });
            let mut send = send.ready().await.unwrap();
            let request = Request::post("https://service/").body(()).unwrap();
            let (response, mut upload) = send.send_request(request, false).unwrap();
            let mut body = ServiceBody::new(response.await.unwrap().into_body(), None, None);
            let first = next_frame(&mut body).await.unwrap().unwrap();
            assert_eq!(first.into_data().unwrap(), "part");
            received.notify_one();
            let reset = poll_fn(|cx| upload.poll_reset(cx)).await;
            assert_eq!(reset.unwrap(), Reason::NO_ERROR);
            let end = next_frame(&mut body).await;
            assert_eq!(end.is_none(), is_complete, "{end:?}");
            service.abort();
        }
    }

    /// The connection ends after the response, before the end of the request.
    #[tokio::test]
    async fn a_response_with_its_whole_length_is_complete() {
        for (length, is_complete) in [(Some(5), true), (Some(6), false), (None, false)] {
            let (near, far) = tokio::io::duplex(256 * 1024);
            let (client, server) =
                tokio::join!(h2::client::handshake(near), server::handshake(far));
            let (send, connection) = client.unwrap();
            let connection = tokio::spawn(connection);
            let mut server: server::Connection<DuplexStream, Bytes> = server.unwrap();
            let received = Arc::new(Notify::new());
            let is_received = Arc::clone(&received);
            let service = tokio::spawn(async move {
                let (_request, mut answer) = server.accept().await.unwrap().unwrap();
                let mut body = answer.send_response(Response::new(()), false).unwrap();
                body.send_data(Bytes::from_static(b"whole"), true).unwrap();
                tokio::select! {
                    _ = server.accept() => {}
                    () = is_received.notified() => {}
                }
            });
            let mut send = send.ready().await.unwrap();
            let request = Request::post("https://service/").body(()).unwrap();
            let (response, _upload) = send.send_request(request, false).unwrap();
            let response = response.await.unwrap();
            received.notify_one();
            service.await.unwrap();
            connection.await.unwrap().ok();
            let mut body = ServiceBody::new(response.into_body(), length, None);
            let first = next_frame(&mut body).await.unwrap().unwrap();
            assert_eq!(first.into_data().unwrap(), "whole");
            let end = next_frame(&mut body).await;
            assert_eq!(end.is_none(), is_complete, "{length:?}: {end:?}");
        }
    }

    #[tokio::test]
    async fn an_abandoned_request_does_not_wait_for_the_window() {
        let (send, mut server) = connect().await;
        // The connection has other requests.
        let _other = send.clone();
        let (pieces, received) = mpsc::channel(1);
        let (body, _) = CountingBody::new(RequestBody::Http1(received));
        let body = HeldBody::new(body, false);
        let request = Request::post("https://service/").body(body).unwrap();
        let mut exchange = Http2Exchange::new(send, &Handle::current(), request);
        // It reads nothing of the request.
        let service = async {
            let (_request, mut answer) = server.accept().await.unwrap().unwrap();
            tokio::select! {
                _ = server.accept() => None,
                reset = poll_fn(|cx| answer.poll_reset(cx)) => reset.ok(),
            }
        };
        let visitor = async {
            let sent = async {
                for _ in 0..2 {
                    let piece = BodyFrame::Data(Bytes::from_static(PIECE));
                    pieces.send(piece).await.unwrap();
                }
                // The second piece is no longer in the channel: it waits for the window.
                drop(pieces.reserve().await.unwrap());
            };
            tokio::select! {
                _ = poll_fn(|cx| exchange.poll(cx)) => panic!("there is no response"),
                () = sent => {}
            }
            drop((exchange, pieces));
        };
        let both = async { tokio::join!(service, visitor) };
        let (reset, ()) = timeout(Duration::from_secs(30), both).await.unwrap();
        assert_eq!(reset, Some(Reason::CANCEL));
    }
}
