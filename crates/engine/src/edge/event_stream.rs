//! A stream of events as the first request of an HTTP/1.1 connection: how nearly everybody watches.
//!
//! The library of HTTP keeps two buffers of 8 KiB for as long as an answer goes on, and the answer of
//! a watcher goes on for days. So a connection is looked at before the library has it: one that begins
//! by asking for the stream is answered here, from the same routes, and holds no buffer while nothing
//! happens. Every other one, and what comes behind the stream, is the library's.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

use api::engine::SSE;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Buf as _;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use http1::{
    BodyLength, CHUNK_END, FieldValue, FieldValueBuf, HEAD_END, LAST_CHUNK, Limits, Method,
    Progress, RequestHead, Slots, Version, field_name, may_complete, parse_request,
    write_chunk_head, write_field, write_status_line,
};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout, timeout_at};
use transport::Stream;

use super::answer::reason;
use super::buffered::Buffered;
use super::forwarding::{CHUNKED, TRANSFER_ENCODING};
use crate::core::Worker;

/// What becomes of the connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AfterStream {
    /// The library goes on, with what is unread.
    Requests,
    /// The client is told goodbye: it asked for that.
    Close,
    /// The client has gone, or was given up.
    Over,
}

/// A request for the stream, whole.
struct FollowUpRequest {
    request: Request,
    head_bytes: usize,
    keep_alive: bool,
}

/// Reads the first request, and answers it with `answer` if it asks for the stream of events. Only
/// what is beyond doubt is answered here: the library has its own word for all that is not.
pub(super) async fn serve<T, F>(
    io: &mut Buffered<T>,
    worker: &Worker,
    (head_deadline, farewell): (Duration, Duration),
    answer: impl FnOnce(Request) -> F,
) -> AfterStream
where
    T: Stream,
    F: Future<Output = Result<Response, Infallible>>,
{
    let limits = Limits {
        head_bytes: worker.core.config.limits.header_bytes,
        target_bytes: worker.core.config.limits.url_bytes,
        ..Limits::default()
    };
    let until = Instant::now() + head_deadline;
    let mut seen = 0;
    let asked = loop {
        let unread = io.unread();
        if !may_ask(unread) {
            return AfterStream::Requests;
        }
        if may_complete(unread, seen, &limits) {
            match FollowUpRequest::read(unread, &limits) {
                Ok(None) => {}
                Ok(Some(asked)) => break asked,
                Err(UnsupportedRequest) => return AfterStream::Requests,
            }
        }
        seen = unread.len();
        let more = timeout_at(until, poll_fn(|cx| io.poll_more(cx)));
        let read = tokio::select! {
            read = more => read,
            () = worker.drain.cancelled() => return AfterStream::Requests,
        };
        if !matches!(read, Ok(Ok(true))) {
            return AfterStream::Over;
        }
    };
    io.consume(asked.head_bytes);
    let Ok(response) = answer(asked.request).await;
    let writing = write(io, response, worker.core.clock.now());
    tokio::pin!(writing);
    let written = tokio::select! {
        written = &mut writing => written,
        // The stream ends by itself then. One who does not read must not hold the others up.
        () = worker.drain.cancelled() => match timeout(farewell, writing).await {
            Ok(written) => written,
            Err(_elapsed) => return AfterStream::Over,
        },
    };
    match written {
        Ok(()) if asked.keep_alive => AfterStream::Requests,
        Ok(()) => AfterStream::Close,
        Err(_) => AfterStream::Over,
    }
}

/// Whether these first bytes may be those of a request for the stream.
fn may_ask(unread: &[u8]) -> bool {
    let mut beginning = b"GET ".iter().chain(SSE.as_bytes());
    unread
        .iter()
        .all(|byte| beginning.next().is_none_or(|expected| byte == expected))
}

/// The library has to look at it.
struct UnsupportedRequest;

impl FollowUpRequest {
    /// `None` while the head is not whole.
    fn read(unread: &[u8], limits: &Limits) -> Result<Option<Self>, UnsupportedRequest> {
        let mut slots = Slots::new();
        match parse_request(unread, limits, &mut slots) {
            Ok(Progress::Partial) => Ok(None),
            Ok(Progress::Complete { head, head_len }) => Ok(Some(Self {
                request: request(&head).ok_or(UnsupportedRequest)?,
                head_bytes: head_len,
                keep_alive: head.keep_alive,
            })),
            Err(_) => Err(UnsupportedRequest),
        }
    }
}

/// The request as the routes take it; `None` where it is anything but a plain one for the stream.
fn request(head: &RequestHead<'_>) -> Option<Request> {
    let plain = head.method == Method::Get
        && head.version == Version::Http11
        && head.body == BodyLength::Empty
        && head.upgrade.is_none()
        && !head.expect_continue;
    if !plain || head.target.path() != SSE {
        return None;
    }
    let target = match head.target.query() {
        Some(query) => PathAndQuery::try_from(format!("{SSE}?{query}")).ok()?,
        None => PathAndQuery::from_static(SSE),
    };
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = target.into();
    for field in head.fields.iter() {
        let name = HeaderName::from_bytes(&field.name).ok()?;
        let value = HeaderValue::from_bytes(&field.value).ok()?;
        request.headers_mut().append(name, value);
    }
    Some(request)
}

/// Writes the answer to its end. The client's going ends it, as whatever else goes wrong does.
///
/// The head goes with the first part of the body: `state.initial`, or the whole of a refusal, is there
/// at once.
async fn write<T: Stream>(
    io: &mut Buffered<T>,
    response: Response,
    now: Timestamp,
) -> io::Result<()> {
    let (parts, mut body) = response.into_parts();
    let length = body.size_hint().exact();
    let end = if length.is_none() { CHUNK_END } else { b"" };
    let mut front = head(&parts, length, now);
    loop {
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            () = poll_fn(|cx| io.poll_hang_up(cx)) => {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(io::Error::other)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        // As a chunk it would be the last one.
        let Some(len) = NonZeroUsize::new(data.len()) else {
            continue;
        };
        if length.is_none() {
            write_chunk_head(&mut front, len);
        }
        let mut out = front.as_slice().chain(data).chain(end);
        io.io.write_all_buf(&mut out).await?;
        io.io.flush().await?;
        // Not the room of the head, either.
        front = Vec::new();
    }
    if length.is_none() {
        front.extend_from_slice(LAST_CHUNK);
    }
    io.io.write_all(&front).await?;
    io.io.flush().await
}

/// Status and fields, with the framing of a body of this length, or of one that goes on.
pub(super) fn head(parts: &Parts, length: Option<u64>, now: Timestamp) -> Vec<u8> {
    let mut head = Vec::with_capacity(256);
    let status = parts.status.as_u16();
    write_status_line(&mut head, status, reason(status));
    for (name, value) in &parts.headers {
        // The body's own length is known better here.
        if name != CONTENT_LENGTH {
            write_field(&mut head, name.into(), value.into());
        }
    }
    match length {
        Some(length) => {
            let mut value = FieldValueBuf::new();
            value.push_number(length);
            write_field(&mut head, field_name!("content-length"), value.as_value());
        }
        None => write_field(&mut head, TRANSFER_ENCODING, CHUNKED),
    }
    // RFC 9110, 6.6.1. A year that it cannot say is no reason to say nothing else.
    if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&now)
        && let Some(date) = FieldValue::parse(date.as_bytes())
    {
        write_field(&mut head, field_name!("date"), date);
    }
    head.extend_from_slice(HEAD_END);
    head
}
