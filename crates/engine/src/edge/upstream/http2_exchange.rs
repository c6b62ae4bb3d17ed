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

use crate::edge::http1::exchange::InterimCount;
use crate::edge::http2::body::{CountingBody, RequestBodyError};
use crate::edge::http2::body_sender::BodySender;

/// A request, until its final response.
pub(in crate::edge) struct Http2Exchange {
    send: SendRequest<Bytes>,
    /// Sends the body. The response may begin, and end, before that.
    runtime: Handle,
    /// `None` after it was sent.
    request: Option<Request<CountingBody>>,
    response: Option<ResponseFuture>,
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

impl Http2Exchange {
    pub(in crate::edge) fn new(
        send: SendRequest<Bytes>,
        runtime: &Handle,
        request: Request<CountingBody>,
    ) -> Self {
        Self {
            send,
            runtime: runtime.clone(),
            request: Some(request),
            response: None,
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
        Poll::Ready(Ok(ServiceResponse::Final(response.map(ServiceBody::new))))
    }

    /// Sends the head, and starts to send the body.
    fn start(&mut self, request: Request<CountingBody>) -> Result<ResponseFuture, h2::Error> {
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
            // It ends with the stream or the connection.
            self.runtime
                .spawn(BodySender::new(stream, body, reset_code));
        }
        Ok(response)
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

/// The error code for the service's stream.
fn reset_code(error: &RequestBodyError) -> Reason {
    match error {
        RequestBodyError::Reset(error) => error.reason().unwrap_or(Reason::INTERNAL_ERROR),
        RequestBodyError::Incomplete => Reason::INTERNAL_ERROR,
    }
}

/// The body of a response. `h2` compares its length with `Content-Length`.
#[derive(Debug)]
pub(in crate::edge) struct ServiceBody {
    stream: RecvStream,
    /// The data has ended, and trailers may follow.
    data_ended: bool,
}

impl ServiceBody {
    fn new(stream: RecvStream) -> Self {
        Self {
            stream,
            data_ended: false,
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
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                // A service that does not need the rest of the request (RFC 9113, 8.1).
                Some(Err(error)) if is_regular(&error) => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => this.data_ended = true,
            }
        }
        match ready!(this.stream.poll_trailers(cx)) {
            Ok(trailers) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
            Err(error) if is_regular(&error) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}

/// True for a reset without an error.
fn is_regular(error: &h2::Error) -> bool {
    error.reason() == Some(Reason::NO_ERROR)
}
