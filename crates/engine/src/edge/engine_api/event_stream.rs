//! Event streams that are the first request of an HTTP/1.1 connection, as for nearly all watching
//! clients.
//!
//! The HTTP library keeps two buffers of 8 KiB for the duration of a response, and an event stream
//! lasts for days. So this module reads a connection before the library does. If the first request
//! is for the event stream, this module sends the response of the same routes, without a buffer
//! between events. The library handles all other connections, and the requests after the stream.

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

use crate::core::Worker;
use crate::edge::headers::forwarding::{CHUNKED, TRANSFER_ENCODING};
use crate::edge::http1::buffered::BufferedStream;
use crate::edge::response::local_response::reason;

/// The next step for the connection.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::edge) enum AfterStream {
    /// The library continues with the unread bytes.
    Requests,
    /// The connection is closed after the response, as the client requested.
    Close,
    /// The client has disconnected, or timed out.
    Closed,
}

/// A complete request for the event stream.
struct StreamRequest {
    request: Request,
    head_bytes: usize,
    keep_alive: bool,
}

/// Reads the first request, and responds with `answer` if it is for the event stream. Invalid or
/// unusual requests are left to the library.
pub(in crate::edge) async fn serve<T, F>(
    io: &mut BufferedStream<T>,
    worker: &Worker,
    (head_deadline, drain_deadline): (Duration, Duration),
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
    let mut scanned = 0;
    let stream_request = loop {
        let unread = io.unread();
        if !may_be_stream_request(unread) {
            return AfterStream::Requests;
        }
        if may_complete(unread, scanned, &limits) {
            match StreamRequest::read(unread, &limits) {
                Ok(None) => {}
                Ok(Some(stream_request)) => break stream_request,
                Err(UnsupportedRequest) => return AfterStream::Requests,
            }
        }
        scanned = unread.len();
        let more = timeout_at(until, poll_fn(|cx| io.poll_more(cx)));
        let read = tokio::select! {
            read = more => read,
            () = worker.drain.cancelled() => return AfterStream::Requests,
        };
        if !matches!(read, Ok(Ok(true))) {
            return AfterStream::Closed;
        }
    };
    io.consume(stream_request.head_bytes);
    let Ok(response) = answer(stream_request.request).await;
    let writing = write(io, response, worker.core.clock.now());
    tokio::pin!(writing);
    let written = tokio::select! {
        written = &mut writing => written,
        // The stream ends automatically during a drain. The deadline applies to clients that do not
        // read.
        () = worker.drain.cancelled() => match timeout(drain_deadline, writing).await {
            Ok(written) => written,
            Err(_elapsed) => return AfterStream::Closed,
        },
    };
    match written {
        Ok(()) if stream_request.keep_alive => AfterStream::Requests,
        Ok(()) => AfterStream::Close,
        Err(_) => AfterStream::Closed,
    }
}

/// True if the first bytes may belong to a request for the event stream.
fn may_be_stream_request(unread: &[u8]) -> bool {
    let mut beginning = b"GET ".iter().chain(SSE.as_bytes());
    unread
        .iter()
        .all(|byte| beginning.next().is_none_or(|expected| byte == expected))
}

/// The library has to handle the request.
struct UnsupportedRequest;

impl StreamRequest {
    /// Returns `None` while the head is incomplete.
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

/// Converts the request for the routes. `None` unless it is a plain request for the event stream.
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

/// Writes the whole response. A disconnect of the client is an error.
///
/// The head is sent together with the first part of the body, which is available immediately:
/// `state.initial`, or a whole refusal.
async fn write<T: Stream>(
    io: &mut BufferedStream<T>,
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
        // An empty chunk would end the body.
        let Some(len) = NonZeroUsize::new(data.len()) else {
            continue;
        };
        if length.is_none() {
            write_chunk_head(&mut front, len);
        }
        let mut out = front.as_slice().chain(data).chain(end);
        io.io.write_all_buf(&mut out).await?;
        io.io.flush().await?;
        // Releases the memory of the head.
        front = Vec::new();
    }
    if length.is_none() {
        front.extend_from_slice(LAST_CHUNK);
    }
    io.io.write_all(&front).await?;
    io.io.flush().await
}

/// The response head, with the framing of a body of this length, or of a stream if there is none.
pub(in crate::edge) fn head(parts: &Parts, length: Option<u64>, now: Timestamp) -> Vec<u8> {
    let mut head = Vec::with_capacity(256);
    let status = parts.status.as_u16();
    write_status_line(&mut head, status, reason(status));
    for (name, value) in &parts.headers {
        // The length is taken from the body itself.
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
    // `Date` (RFC 9110, 6.6.1) is left out for a year that the format cannot express.
    if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&now)
        && let Some(date) = FieldValue::parse(date.as_bytes())
    {
        write_field(&mut head, field_name!("date"), date);
    }
    head.extend_from_slice(HEAD_END);
    head
}
