//! One HTTP/2 request through a tunnel and its response back.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use http1::{
    BodyLength, BodyReader, BodyState, Limits, Progress, ResponseBody, ResponseHead, Slots,
    may_complete, parse_response, parse_trailers,
};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead as _, AsyncWrite as _, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, timeout_at};
use transport::Scratch;
use types::problem::Problem;

use super::answer::Answer;
use super::body::UpBody;
use super::exchange::{INTERIM, problem_of};
use super::http2::refusal;
use super::plan::Forward;
use super::record::{Outcome, Record};
use super::translate;
use super::upstream::{self, Connection, Http1, Http2, UpIo};
use crate::agents::random_bytes;
use crate::core::Worker;

/// Serves one request.
pub(super) async fn run(
    worker: &Arc<Worker>,
    source: IpAddr,
    forward: Forward,
    body: Incoming,
    length: BodyLength,
    mut record: Record,
) -> Response<DownBody> {
    let deadline = Instant::now() + worker.core.config.timeouts.stream_request;
    let mut upload = Upload::new(forward.head.clone(), body, length);
    let mut fresh = false;
    loop {
        let connection = match upstream::connect(worker, &forward.tunnel, source, fresh).await {
            Ok(connection) => connection,
            Err(error) => {
                record.failed(error.to_string());
                return refuse(&forward, record, &problem_of(&error));
            }
        };
        record.opened();
        let mut upstream = match connection {
            Connection::Http1(io) => io,
            Connection::Http2(send) => {
                return through_http2(forward, upload.body.take(), send, deadline, record).await;
            }
        };
        let mut awaited = Awaited {
            seen: 0,
            interim: 0,
            is_head: forward.is_head,
        };
        let answering = std::future::poll_fn(|cx| awaited.poll(cx, &mut upload, &mut upstream));
        match timeout_at(deadline, answering).await {
            Ok(Ok(answer)) => {
                return respond(worker, &forward, answer, upstream, upload, record);
            }
            Ok(Err(NoAnswer::Silent(reason))) => {
                let refused = upstream
                    .io
                    .refusal()
                    .map(|refusal| refusal.text().to_owned());
                let again = !fresh && refused.is_none() && forward.idempotent;
                if again && upload.rewind() {
                    fresh = true;
                    continue;
                }
                record.failed(refused.unwrap_or(reason));
                return refuse(&forward, record, &Problem::upstream_unreachable());
            }
            Ok(Err(NoAnswer::Bad(reason))) => {
                record.failed(reason);
                return refuse(&forward, record, &Problem::upstream_unreachable());
            }
            Ok(Err(NoAnswer::VisitorGone)) => {
                return refuse(&forward, record, &Problem::conflict());
            }
            Err(_) => {
                record.failed("no answer in time");
                return refuse(&forward, record, &Problem::upstream_timeout());
            }
        }
    }
}

fn refuse(forward: &Forward, mut record: Record, problem: &Problem) -> Response<DownBody> {
    record.status(problem.status);
    refusal(Answer::problem(problem, forward.html), forward.is_head)
}

/// Both ends speak HTTP/2: heads are translated once, bodies pass as they are.
async fn through_http2(
    forward: Forward,
    body: Option<Incoming>,
    mut send: Http2,
    deadline: Instant,
    mut record: Record,
) -> Response<DownBody> {
    let tls = forward.tunnel.view.properties.upstream_tls == Some(true);
    let body = body.map_or(UpBody::Empty, UpBody::Http2);
    let Some(request) = translate::request(&forward.head, tls, forward.trailers, body) else {
        return refuse(&forward, record, &Problem::upstream_unreachable());
    };
    let answering = async {
        send.ready().await?;
        send.send_request(request).await
    };
    match timeout_at(deadline, answering).await {
        Ok(Ok(response)) => {
            record.first_byte();
            record.status(response.status().as_u16());
            let (mut parts, body) = response.into_parts();
            translate::strip_connection_fields(&mut parts.headers);
            Response::from_parts(
                parts,
                DownBody::Http2 {
                    body,
                    record,
                    bytes: 0,
                },
            )
        }
        Ok(Err(error)) => {
            record.failed(error.to_string());
            refuse(&forward, record, &Problem::upstream_unreachable())
        }
        Err(_) => {
            record.failed("no answer in time");
            refuse(&forward, record, &Problem::upstream_timeout())
        }
    }
}

/// Serves an extended CONNECT (RFC 8441): an upgrade towards the service, a stream towards the
/// visitor.
pub(super) async fn upgrade(
    worker: &Arc<Worker>,
    source: IpAddr,
    mut forward: Forward,
    visitor: OnUpgrade,
    mut record: Record,
) -> Response<DownBody> {
    if !forward.upgrade {
        return refuse(&forward, record, &Problem::not_implemented());
    }
    add_websocket_key(&mut forward.head);
    let deadline = Instant::now() + worker.core.config.timeouts.stream_request;
    let mut upstream = match upstream::connect_http1(worker, &forward.tunnel, source).await {
        Ok(upstream) => upstream,
        Err(error) => {
            record.failed(error.to_string());
            return refuse(&forward, record, &problem_of(&error));
        }
    };
    record.opened();
    let asking = async {
        upstream.io.write_all(&forward.head).await?;
        upstream.io.flush().await
    };
    if !matches!(timeout_at(deadline, asking).await, Ok(Ok(()))) {
        record.failed("the service does not take the request");
        return refuse(&forward, record, &Problem::upstream_unreachable());
    }
    let mut awaited = Awaited {
        seen: 0,
        interim: 0,
        is_head: false,
    };
    let answering = std::future::poll_fn(|cx| awaited.poll_head(cx, &mut upstream));
    let answer = match timeout_at(deadline, answering).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => {
            record.failed("the service did not answer the upgrade");
            return refuse(&forward, record, &Problem::upstream_unreachable());
        }
        Err(_) => return refuse(&forward, record, &Problem::upstream_timeout()),
    };
    if !answer.changed {
        // Not an upgrade: the service's own answer, which the visitor gets like any other.
        let upload = Upload::none();
        return respond(worker, &forward, answer, upstream, upload, record);
    }
    record.first_byte();
    record.status(200);
    worker.spawn(async move {
        let Ok(upgraded) = visitor.await else { return };
        let mut visitor = TokioIo::new(upgraded);
        let ahead = upstream.unread().to_vec();
        let greeting = async {
            visitor.write_all(&ahead).await?;
            visitor.flush().await
        };
        if greeting.await.is_err() {
            return;
        }
        let pumped = transport::pump(&mut visitor, &mut upstream.io).await;
        record.bytes(pumped.forth, pumped.back + ahead.len() as u64);
        match pumped.result {
            Ok(()) => record.ended(Outcome::Served),
            Err(error) => record.failed(error.to_string()),
        }
    });
    let mut response = answer.response.map(|()| DownBody::Full(None));
    *response.status_mut() = http::StatusCode::OK;
    response.headers_mut().remove("sec-websocket-accept");
    response
}

/// An upgrade in HTTP/1.1 needs a key, which extended CONNECT has not (RFC 8441, 5.1).
fn add_websocket_key(head: &mut Vec<u8>) {
    let key = base64::engine::general_purpose::STANDARD.encode(random_bytes::<16>());
    head.truncate(head.len().saturating_sub(http1::HEAD_END.len()));
    http1::write_field(head, b"sec-websocket-key", key.as_bytes());
    head.extend_from_slice(http1::HEAD_END);
}

/// Waiting for the head of a final response.
struct Awaited {
    seen: usize,
    interim: usize,
    is_head: bool,
}

/// A response head, ready for the visitor.
struct Answer1 {
    response: Response<()>,
    body: ResponseBody,
    reusable: bool,
    /// The service changed protocols.
    changed: bool,
}

enum NoAnswer {
    /// The connection ended before it brought a byte.
    Silent(String),
    Bad(&'static str),
    VisitorGone,
}

impl Awaited {
    /// Sends the request and looks for the head.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        upload: &mut Upload,
        upstream: &mut Http1,
    ) -> Poll<Result<Answer1, NoAnswer>> {
        if upload.poll(cx, &mut upstream.io).is_err() {
            return Poll::Ready(Err(NoAnswer::VisitorGone));
        }
        self.poll_head(cx, upstream)
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &mut Http1,
    ) -> Poll<Result<Answer1, NoAnswer>> {
        loop {
            let limits = Limits::default();
            while upstream.unread().len() > self.seen
                && may_complete(upstream.unread(), self.seen, &limits)
            {
                match self.take_head(upstream, &limits).map_err(NoAnswer::Bad)? {
                    Taken::Final(answer) => return Poll::Ready(Ok(answer)),
                    Taken::Interim => self.seen = 0,
                    Taken::Partial => break,
                }
            }
            self.seen = upstream.unread().len();
            let ended = match ready!(upstream.poll_more(cx)) {
                Ok(true) => continue,
                Ok(false) => "the service closed".to_owned(),
                Err(error) => error.to_string(),
            };
            let silent = upstream.unread().is_empty() && self.interim == 0;
            return Poll::Ready(Err(if silent {
                NoAnswer::Silent(ended)
            } else {
                NoAnswer::Bad("the service broke off in the head of its answer")
            }));
        }
    }

    fn take_head(&mut self, upstream: &mut Http1, limits: &Limits) -> Result<Taken, &'static str> {
        let mut slots = Slots::new();
        let parsed = parse_response(upstream.unread(), limits, self.is_head, &mut slots);
        let Progress::Complete { head, head_len } = parsed.map_err(|bad| bad.reason)? else {
            return Ok(Taken::Partial);
        };
        let taken = match head.status {
            // RFC 9113 has them too, but few visitors want them and none needs them.
            100 | 102..=199 => {
                self.interim += 1;
                if self.interim > INTERIM {
                    return Err("too many interim responses");
                }
                Taken::Interim
            }
            _ => Taken::Final(answer_of(&head)?),
        };
        upstream.consume(head_len);
        Ok(taken)
    }
}

enum Taken {
    Partial,
    Interim,
    Final(Answer1),
}

fn answer_of(head: &ResponseHead<'_>) -> Result<Answer1, &'static str> {
    let changed = head.status == 101;
    if changed && head.upgrade.is_none() {
        return Err("the service changed protocols unasked");
    }
    let response = translate::response(head).ok_or("a field that HTTP/2 cannot carry")?;
    let reusable = head.keep_alive && head.body != ResponseBody::UntilClose && !changed;
    Ok(Answer1 {
        response,
        body: head.body,
        reusable,
        changed,
    })
}

/// Hands the response to the library, which takes its body as fast as the visitor does.
fn respond(
    worker: &Arc<Worker>,
    forward: &Forward,
    answer: Answer1,
    upstream: Http1,
    upload: Upload,
    mut record: Record,
) -> Response<DownBody> {
    if answer.changed {
        record.failed("the service changed protocols unasked");
        return refuse(forward, record, &Problem::upstream_unreachable());
    }
    record.first_byte();
    record.status(answer.response.status().as_u16());
    let mut body = ServiceBody {
        reader: BodyReader::from(answer.body),
        upstream: Some(upstream),
        upload,
        record: Some(record),
        worker: Arc::clone(worker),
        tunnel: forward.tunnel.view.id,
        reusable: answer.reusable,
        bytes: 0,
    };
    if body.reader.is_done() && body.upload.is_sent() {
        body.finish();
    }
    answer.response.map(|()| DownBody::Http1(Box::new(body)))
}

/// The request, written as HTTP/1.1: its head, then its body as the visitor sends it.
struct Upload {
    head: Vec<u8>,
    body: Option<Incoming>,
    chunked: bool,
    out: Vec<u8>,
    sent: usize,
    state: Sending,
    /// Nothing of the body has been taken, so the request can be sent again.
    only_head: bool,
    written: u64,
}

#[derive(PartialEq)]
enum Sending {
    Body,
    /// All of it is in `out`.
    Ended,
    Sent,
    /// The service takes no more.
    Broken,
}

impl Upload {
    fn new(head: Vec<u8>, body: Incoming, length: BodyLength) -> Self {
        let empty = length == BodyLength::Empty;
        Self {
            out: head.clone(),
            head,
            body: (!empty).then_some(body),
            chunked: length == BodyLength::Chunked,
            sent: 0,
            state: if empty { Sending::Ended } else { Sending::Body },
            only_head: true,
            written: 0,
        }
    }

    /// A request that has been sent otherwise.
    fn none() -> Self {
        Self {
            head: Vec::new(),
            body: None,
            chunked: false,
            out: Vec::new(),
            sent: 0,
            state: Sending::Sent,
            only_head: false,
            written: 0,
        }
    }

    /// Begins again, if nothing of the body is lost. A request with a body is not repeated.
    fn rewind(&mut self) -> bool {
        if self.body.is_some() || !self.only_head {
            return false;
        }
        self.out.clone_from(&self.head);
        self.sent = 0;
        self.state = Sending::Ended;
        true
    }

    fn is_sent(&self) -> bool {
        self.state == Sending::Sent
    }

    /// Sends what there is. An error is the visitor's: it broke off.
    fn poll(&mut self, cx: &mut Context<'_>, io: &mut UpIo) -> Result<(), ()> {
        while !matches!(self.state, Sending::Sent | Sending::Broken) {
            if self.poll_out(cx, io).is_pending() {
                return Ok(());
            }
            if self.state != Sending::Body {
                continue;
            }
            let Some(body) = &mut self.body else {
                self.state = Sending::Ended;
                continue;
            };
            match Pin::new(body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => self.encode(frame),
                Poll::Ready(Some(Err(_))) => return Err(()),
                Poll::Ready(None) => self.end(&HeaderMap::new()),
                Poll::Pending => {
                    if let Poll::Ready(Err(_)) = Pin::new(&mut *io).poll_flush(cx) {
                        self.state = Sending::Broken;
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Writes what is in memory; ready when that is done, or when the service takes no more.
    fn poll_out(&mut self, cx: &mut Context<'_>, io: &mut UpIo) -> Poll<()> {
        while self.sent < self.out.len() {
            let rest = self.out.get(self.sent..).unwrap_or_default();
            match ready!(Pin::new(&mut *io).poll_write(cx, rest)) {
                Ok(count) if count > 0 => {
                    self.sent += count;
                    self.written += count as u64;
                }
                Ok(_) | Err(_) => {
                    self.state = Sending::Broken;
                    return Poll::Ready(());
                }
            }
        }
        self.out.clear();
        self.sent = 0;
        if self.state == Sending::Ended {
            let flushed = ready!(Pin::new(&mut *io).poll_flush(cx));
            self.state = if flushed.is_ok() {
                Sending::Sent
            } else {
                Sending::Broken
            };
        }
        Poll::Ready(())
    }

    fn encode(&mut self, frame: Frame<Bytes>) {
        self.only_head = false;
        match frame.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) if self.chunked => {
                http1::write_chunk_head(&mut self.out, data.len());
                self.out.extend_from_slice(&data);
                self.out.extend_from_slice(http1::CHUNK_END);
            }
            Ok(data) => self.out.extend_from_slice(&data),
            Err(frame) => self.end(&frame.into_trailers().unwrap_or_default()),
        }
    }

    fn end(&mut self, trailers: &HeaderMap) {
        self.only_head = false;
        self.state = Sending::Ended;
        if !self.chunked {
            return;
        }
        self.out.extend_from_slice(b"0\r\n");
        for (name, value) in trailers {
            let name = name.as_str().as_bytes();
            let kind = http1::FieldKind::of(name);
            if kind == http1::FieldKind::Other {
                http1::write_field(&mut self.out, name, value.as_bytes());
            }
        }
        self.out.extend_from_slice(http1::HEAD_END);
    }
}

/// A response body on its way to an HTTP/2 visitor.
pub(super) enum DownBody {
    /// Of our own.
    Full(Option<Bytes>),
    /// From a service that speaks HTTP/1.1.
    Http1(Box<ServiceBody>),
    /// From a service that speaks HTTP/2.
    Http2 {
        body: Incoming,
        record: Record,
        bytes: u64,
    },
}

/// Reads the response, and sends on what is left of the request meanwhile.
pub(super) struct ServiceBody {
    reader: BodyReader,
    /// Gone once the response has been read.
    upstream: Option<Http1>,
    upload: Upload,
    record: Option<Record>,
    worker: Arc<Worker>,
    tunnel: types::id::TunnelId,
    reusable: bool,
    bytes: u64,
}

impl ServiceBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(upstream) = &mut self.upstream else {
            return Poll::Ready(None);
        };
        // A visitor that breaks off its request still gets the answer that is under way.
        self.upload.poll(cx, &mut upstream.io).ok();
        let frame = ready!(poll_service(cx, &mut self.reader, upstream));
        match &frame {
            Some(Ok(frame)) => {
                self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                if self.reader.is_done() {
                    self.finish();
                }
            }
            Some(Err(error)) => {
                if let Some(record) = &mut self.record {
                    record.bytes(self.upload.written, self.bytes);
                    record.failed(error.to_string());
                }
                self.upstream = None;
            }
            None => self.finish(),
        }
        Poll::Ready(frame)
    }

    /// The response is whole: the connection goes back, the record is written.
    fn finish(&mut self) {
        let Some(upstream) = self.upstream.take() else {
            return;
        };
        if let Some(mut record) = self.record.take() {
            record.bytes(self.upload.written, self.bytes);
            record.ended(Outcome::Served);
        }
        if self.reusable && self.upload.is_sent() && upstream.unread().is_empty() {
            self.worker.upstreams.lock().keep(self.tunnel, upstream);
        }
    }
}

/// The next piece of a body.
fn poll_service(
    cx: &mut Context<'_>,
    reader: &mut BodyReader,
    upstream: &mut Http1,
) -> Poll<Option<io::Result<Frame<Bytes>>>> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    loop {
        if reader.is_done() {
            return Poll::Ready(None);
        }
        if !upstream.unread().is_empty() {
            let unread = upstream.unread();
            let step = reader.advance(unread).map_err(invalid)?;
            let data = unread.get(step.data).unwrap_or_default();
            let data = (!data.is_empty()).then(|| Bytes::copy_from_slice(data));
            let trailers = match &step.state {
                BodyState::Trailers(range) => {
                    Some(trailers(unread.get(range.clone()).unwrap_or_default())?)
                }
                BodyState::More | BodyState::Done => None,
            };
            upstream.consume(step.consumed);
            if let Some(data) = data {
                // Trailers come in a step of their own, behind the last data.
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if let Some(trailers) = trailers {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            if step.consumed > 0 {
                continue;
            }
            if !ready!(upstream.poll_more(cx))? {
                reader.finish().map_err(invalid)?;
                return Poll::Ready(None);
            }
            continue;
        }
        let mut scratch = Scratch::take(Scratch::SMALL);
        let mut buf = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut upstream.io).poll_read(cx, &mut buf))?;
        if buf.filled().is_empty() {
            reader.finish().map_err(invalid)?;
            *reader = BodyReader::Done;
            return Poll::Ready(None);
        }
        upstream.append(buf.filled());
    }
}

fn trailers(section: &[u8]) -> io::Result<HeaderMap> {
    let mut slots = Slots::new();
    let fields = parse_trailers(section, &mut slots)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let mut trailers = HeaderMap::new();
    for field in fields.iter() {
        let name = HeaderName::from_bytes(field.name).map_err(io::Error::other)?;
        let value = HeaderValue::from_bytes(field.value).map_err(io::Error::other)?;
        trailers.append(name, value);
    }
    Ok(trailers)
}

impl Body for DownBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(
                bytes
                    .take()
                    .filter(|bytes| !bytes.is_empty())
                    .map(|bytes| Ok(Frame::data(bytes))),
            ),
            Self::Http1(body) => body.poll_frame(cx),
            Self::Http2 {
                body,
                record,
                bytes,
            } => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                match &frame {
                    Some(Ok(frame)) => {
                        *bytes += frame.data_ref().map_or(0, |data| data.len() as u64)
                    }
                    Some(Err(error)) => record.failed(error.to_string()),
                    None => record.ended(Outcome::Served),
                }
                record.bytes(0, *bytes);
                Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Http1(body) => body.upstream.is_none(),
            Self::Http2 { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Http1(_) => SizeHint::default(),
            Self::Http2 { body, .. } => body.size_hint(),
        }
    }
}
