//! An HTTP/1.1 visitor with a service that uses HTTP/2.

use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http1::{BodyError, BodyLength, BodyReader, BodyState};
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::PollSender;
use types::problem::Problem;

use super::{NextStep, Request, Visitor};
use crate::edge::access_record::Outcome;
use crate::edge::headers::forwarding::add_timing;
use crate::edge::headers::identity::ReservedNames;
use crate::edge::headers::trailers;
use crate::edge::headers::translate;
use crate::edge::http1::copy::Framing;
use crate::edge::http1::exchange::{ExchangeOutcome, SentRequest};
use crate::edge::http1::interim::InterimBytes;
use crate::edge::http2::body::{BodyFrame, ByteCounter, CountingBody, RequestBody};
use crate::edge::http2::held_body::HeldBody;
use crate::edge::response_timeout::{ResponseTimeout, await_with_timeout};
use crate::edge::upstream;
use crate::edge::upstream::{
    Http2, Http2Exchange, Http2ResponseError, ServiceBody, ServiceResponse, StreamPermit,
};

/// Capacity of the channel for body frames. It is one, so that bytes that the service cannot take
/// are not read.
const PIECES: usize = 1;

/// The failure of a request that was sent with one HTTP version and cannot be sent with the other.
pub(in crate::edge) const OTHER_VERSION: &str = "the service changed its HTTP version";

/// Converts a request that was sent on another connection.
///
/// # Errors
/// It was sent with HTTP/1.1 and has a body.
pub(in crate::edge) fn upload_of(
    sent: Option<SentRequest>,
    request: &mut Request,
) -> Result<Option<Box<Http2Upload>>, &'static str> {
    match sent {
        None => Ok(None),
        Some(SentRequest::Http2(upload)) => Ok(Some(upload)),
        Some(SentRequest::Http1(copy)) => {
            request.admitted.head = copy.into_bodiless_head().ok_or(OTHER_VERSION)?;
            Ok(None)
        }
    }
}

/// Serves one request that arrived at `started`. `upload`: it was sent on another connection.
pub(in crate::edge) async fn run(
    (visitor, interim): (&mut Visitor, &mut InterimBytes),
    request: &mut Request,
    (http2, upload): (Http2, Option<Box<Http2Upload>>),
    started: Instant,
) -> ExchangeOutcome {
    let Http2 {
        mut send,
        permit,
        is_reused,
    } = http2;
    // RFC 9110, 15.2: an HTTP/1.0 client gets no interim responses.
    let has_interim = request.response_format.version == http1::Version::Http11;
    let mut responses = Responses {
        interim,
        has_interim,
    };
    let upload = upload.map(|upload| *upload);
    let mut upload = upload.unwrap_or_else(|| Http2Upload::new(request.body, is_reused));
    let forward = &request.admitted;
    let tls = forward.tunnel.view.properties.upstream_tls == Some(true);
    let body = upload.body.sender();
    let Some(outgoing) = translate::request(&forward.head, tls, forward.accepts_trailers, body)
    else {
        return ExchangeOutcome::Refused(Problem::upstream_unreachable());
    };
    request.record.set_upload_counter(upload.counter.clone());
    // Few services with HTTP/2 send a 100, so the edge itself does. It is not sent if the connection
    // to the service has failed.
    let awaited =
        request.expects_continue && !upload.state.is_whole() && visitor.io.unread().is_empty();
    let is_ready = awaited && poll_fn(|cx| send.poll_ready(cx)).await.is_ok();
    if is_ready && visitor.send_continue().await.is_err() {
        return ExchangeOutcome::Next(NextStep::Abort);
    }
    request.expects_continue &= !is_ready;
    let before = permit.written();
    let period = ResponseTimeout::for_tunnel(&forward.tunnel, &visitor.worker.core.config);
    let mut exchange = Http2Exchange::new(send, &visitor.worker.runtime, outgoing);
    let mut malformed = None;
    let answered = await_with_timeout(started, period, |cx| {
        let uploaded = upload.state.poll(cx, visitor);
        upload.body.poll_expiry(cx);
        let answer = match responses.poll_answer(cx, &mut exchange, &mut visitor.io.io) {
            Poll::Ready(answer) => Poll::Ready(answer),
            Poll::Pending if uploaded.is_err() => {
                malformed = uploaded.err().flatten();
                Poll::Ready(None)
            }
            Poll::Pending if upload.state.poll_hang_up(cx, visitor).is_ready() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        };
        request.record.add_sent_bytes(0);
        (answer, upload.counter.progress())
    });
    let answered = answered.await;
    if upload.state.is_whole() {
        // The whole request has been read, so the next one may follow a response of the edge.
        request.body = BodyLength::Empty;
    }
    match answered {
        Some(Some(Ok(response))) => {
            permit.mark_answered();
            let answer = (response, responses.interim.take_unsent());
            let upload = upload.into_state();
            ExchangeOutcome::Next(respond(visitor, request, answer, upload, &permit).await)
        }
        Some(Some(Err(error))) => {
            let asks_agent = !request.admitted.idempotent && upload.body.is_repeatable();
            let is_unprocessed = exchange.is_unprocessed(&error)
                || (asks_agent && error.is_undelivered(&permit, before).await);
            without_response(request, (&error, is_unprocessed), upload, &permit)
        }
        Some(None) => match malformed {
            Some(reason) => ExchangeOutcome::Refused(request.malformed_body(reason)),
            None => ExchangeOutcome::Next(NextStep::Abort),
        },
        None => {
            permit.record_failure();
            upstream::discard_http2(&visitor.worker, &request.admitted.tunnel, &permit);
            request.record.set_failure("no answer in time");
            ExchangeOutcome::Refused(Problem::upstream_timeout())
        }
    }
}

/// Handles a request that has no final response.
fn without_response(
    request: &mut Request,
    (error, is_unprocessed): (&Http2ResponseError, bool),
    upload: Http2Upload,
    permit: &StreamPermit,
) -> ExchangeOutcome {
    let reason = error.to_string();
    let is_safe = is_unprocessed || request.admitted.idempotent;
    let may_retry = is_safe && upload.body.is_repeatable();
    if !may_retry || !is_unprocessed {
        error.record(permit);
    }
    if matches!(error, Http2ResponseError::Invalid(_)) {
        request.record.set_failure(reason.clone());
        return ExchangeOutcome::Refused(Problem::upstream_invalid_response().with_detail(reason));
    }
    if may_retry && !upload.has_body {
        return ExchangeOutcome::Retry(None, reason);
    }
    if may_retry && let Some(again) = upload.again() {
        return ExchangeOutcome::Retry(Some(SentRequest::Http2(Box::new(again))), reason);
    }
    request.admitted.tunnel.health.record_failure();
    request.record.set_failure(reason);
    ExchangeOutcome::Refused(Problem::upstream_unreachable())
}

/// The responses of the service before the final one.
struct Responses<'v> {
    interim: &'v mut InterimBytes,
    /// The visitor gets them.
    has_interim: bool,
}

impl Responses<'_> {
    /// Forwards the interim responses, and waits for the final one; ready with `None` if the visitor
    /// has disconnected.
    fn poll_answer<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Http2Exchange,
        visitor: &mut W,
    ) -> Poll<Option<Result<Response<ServiceBody>, Http2ResponseError>>> {
        loop {
            match exchange.poll(cx) {
                Poll::Ready(Ok(ServiceResponse::Interim(response))) => {
                    if self.has_interim && response.status() != StatusCode::CONTINUE {
                        translate::write_interim(self.interim.bytes_mut(), &response);
                    }
                }
                Poll::Ready(Ok(ServiceResponse::Final(response))) => {
                    return Poll::Ready(Some(Ok(response)));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Pending => break,
            }
        }
        match self.interim.poll_write(cx, visitor) {
            Ok(()) => Poll::Pending,
            Err(()) => Poll::Ready(None),
        }
    }
}

/// The body of a request, which may be sent on two connections.
pub(in crate::edge) struct Http2Upload {
    state: UploadState,
    body: HeldBody,
    counter: ByteCounter,
    has_body: bool,
}

impl Http2Upload {
    /// `is_kept`: what is sent is kept for a second connection.
    fn new(length: BodyLength, is_kept: bool) -> Self {
        let reader = BodyReader::from(length);
        let has_body = !reader.is_done();
        let (body, state) = if has_body {
            let (sender, receiver) = mpsc::channel(PIECES);
            let upload = Upload {
                reader,
                sender: PollSender::new(sender),
            };
            (RequestBody::Http1(receiver), UploadState::Sending(upload))
        } else {
            (RequestBody::Empty, UploadState::Complete)
        };
        let (body, counter) = CountingBody::new(body);
        Self {
            state,
            body: HeldBody::new(body, is_kept),
            counter,
            has_body,
        }
    }

    /// The rest of the upload, which is not sent again.
    fn into_state(self) -> UploadState {
        self.body.release();
        self.state
    }

    /// The same for another connection. `None` if it cannot be sent again.
    fn again(self) -> Option<Self> {
        let body = self.body.again()?;
        Some(Self { body, ..self })
    }
}

/// State of the request's body.
enum UploadState {
    Sending(Upload),
    /// The whole body has been read, so the next request starts after it.
    Complete,
    /// The service accepts no more of the body. Its remaining bytes are not a new request.
    Unwanted,
}

/// The request's body, read by the visitor's task and sent by the task of the HTTP/2 connection.
struct Upload {
    reader: BodyReader,
    sender: PollSender<BodyFrame>,
}

enum BodyProgress {
    Piece,
    Last,
    Unwanted,
}

impl UploadState {
    fn is_whole(&self) -> bool {
        matches!(self, Self::Complete)
    }

    /// Ready when the visitor has closed after its request.
    fn poll_hang_up(&self, cx: &mut Context<'_>, visitor: &mut Visitor) -> Poll<()> {
        if self.is_whole() {
            visitor.poll_hang_up(cx)
        } else {
            Poll::Pending
        }
    }

    /// Sends available bytes of the body.
    ///
    /// # Errors
    /// The body is malformed, with the reason, or the visitor disconnected.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        visitor: &mut Visitor,
    ) -> Result<(), Option<&'static str>> {
        while let Self::Sending(upload) = self {
            match upload.poll(cx, visitor) {
                Poll::Ready(Ok(BodyProgress::Piece)) => {}
                Poll::Ready(Ok(BodyProgress::Last)) => *self = Self::Complete,
                Poll::Ready(Ok(BodyProgress::Unwanted)) => *self = Self::Unwanted,
                Poll::Ready(Err(error)) => {
                    *self = Self::Unwanted;
                    return Err(error);
                }
                Poll::Pending => break,
            }
        }
        Ok(())
    }
}

impl Upload {
    /// Sends one frame.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        visitor: &mut Visitor,
    ) -> Poll<Result<BodyProgress, Option<&'static str>>> {
        if ready!(self.sender.poll_reserve(cx)).is_err() {
            // The service reset the stream. Its response has the reason.
            return Poll::Ready(Ok(BodyProgress::Unwanted));
        }
        let unread = visitor.io.unread();
        let step = self.reader.advance(unread).map_err(|error| match error {
            BodyError::Malformed(reason) => Some(reason),
            BodyError::BrokeOff => None,
        })?;
        let data = unread.get(step.data).unwrap_or_default();
        if !data.is_empty() {
            let data = Bytes::copy_from_slice(data);
            visitor.io.consume(step.consumed);
            let sent = self.sender.send_item(BodyFrame::Data(data));
            return Poll::Ready(Ok(
                sent.map_or(BodyProgress::Unwanted, |()| BodyProgress::Piece)
            ));
        }
        visitor.io.consume(step.consumed);
        if step.state != BodyState::More || self.reader.is_done() {
            // If the service has disconnected meanwhile, the end of the body is not needed.
            self.sender.send_item(BodyFrame::End).ok();
            return Poll::Ready(Ok(BodyProgress::Last));
        }
        match ready!(visitor.io.poll_more(cx)) {
            Ok(true) => Poll::Ready(Ok(BodyProgress::Piece)),
            Ok(false) | Err(_) => Poll::Ready(Err(None)),
        }
    }
}

/// Sends the response after the bytes `out`, while the rest of the request is still being sent.
async fn respond(
    visitor: &mut Visitor,
    request: &mut Request,
    (response, mut out): (Response<ServiceBody>, Vec<u8>),
    mut upload: UploadState,
    permit: &StreamPermit,
) -> NextStep {
    request.admitted.tunnel.health.record_success();
    let record = &mut request.record;
    record.mark_first_byte();
    record.set_status(response.status().as_u16());
    let is_head = request.admitted.is_head;
    let (framing, keep_alive) =
        translate::write_response(&mut out, &response, is_head, request.response_format);
    if request.admitted.server_timing {
        add_timing(&mut out, record);
    }
    let mut download = Download {
        body: response.into_body(),
        framing,
        out,
        sent: 0,
        ended: false,
    };
    let mut written = 0;
    let copied = poll_fn(|cx| {
        // A visitor that aborts its request still gets the response in progress.
        upload.poll(cx, visitor).ok();
        let polled = download.poll(cx, &mut visitor.io.io, &mut written);
        record.add_sent_bytes(written);
        if polled.is_pending() && upload.poll_hang_up(cx, visitor).is_ready() {
            return Poll::Ready(Err(ExchangeError::Visitor));
        }
        polled
    });
    let copied = copied.await;
    match copied {
        Ok(()) => {
            record.set_outcome(Outcome::Served);
            if upload.is_whole() && keep_alive {
                NextStep::Request
            } else {
                NextStep::Close
            }
        }
        Err(ExchangeError::Visitor) => NextStep::Abort,
        Err(ExchangeError::Service(error)) => {
            if upstream::is_service_failure(&error) {
                permit.record_failure();
            }
            record.set_failure(error.to_string());
            NextStep::Abort
        }
    }
}

struct Download {
    body: ServiceBody,
    /// `None` if the response has no body, even if the service sends one.
    framing: Option<Framing>,
    out: Vec<u8>,
    sent: usize,
    ended: bool,
}

enum ExchangeError {
    Visitor,
    Service(h2::Error),
}

impl Download {
    fn poll<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut W,
        written: &mut u64,
    ) -> Poll<Result<(), ExchangeError>> {
        loop {
            while self.sent < self.out.len() {
                let rest = self.out.get(self.sent..).unwrap_or_default();
                match ready!(Pin::new(&mut *sink).poll_write(cx, rest)) {
                    Ok(count) if count > 0 => {
                        self.sent += count;
                        *written += count as u64;
                    }
                    Ok(_) | Err(_) => return Poll::Ready(Err(ExchangeError::Visitor)),
                }
            }
            if self.ended {
                let flushed = ready!(Pin::new(&mut *sink).poll_flush(cx));
                return Poll::Ready(flushed.map_err(|_| ExchangeError::Visitor));
            }
            let frame = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    if ready!(Pin::new(&mut *sink).poll_flush(cx)).is_err() {
                        return Poll::Ready(Err(ExchangeError::Visitor));
                    }
                    return Poll::Pending;
                }
            };
            self.out.clear();
            self.sent = 0;
            match frame {
                Some(Ok(frame)) => self.encode(frame),
                Some(Err(error)) => return Poll::Ready(Err(ExchangeError::Service(error))),
                None => {
                    self.ended = true;
                    if self.framing == Some(Framing::Chunks) {
                        self.out.extend_from_slice(http1::LAST_CHUNK);
                    }
                }
            }
        }
    }

    fn encode(&mut self, frame: http_body::Frame<Bytes>) {
        match frame.into_data() {
            Ok(_) if self.framing.is_none() => {}
            Ok(data) if self.framing == Some(Framing::Chunks) => {
                if let Some(len) = NonZeroUsize::new(data.len()) {
                    http1::write_chunk_head(&mut self.out, len);
                    self.out.extend_from_slice(&data);
                    self.out.extend_from_slice(http1::CHUNK_END);
                }
            }
            Ok(data) => self.out.extend_from_slice(&data),
            Err(frame) => {
                let Ok(fields) = frame.into_trailers() else {
                    return;
                };
                self.ended = true;
                if self.framing != Some(Framing::Chunks) {
                    return;
                }
                trailers::write_last_chunk(&mut self.out, &fields, &ReservedNames::default());
            }
        }
    }
}
