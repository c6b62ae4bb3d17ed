//! One HTTP/1.1 request to a service with HTTP/1.1, and its response. Both are copied concurrently.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use http1::{BodyReader, Limits, ResponseBody, Slots, may_complete, parse_response};
use tokio::time::Instant;
use transport::memory::Source;
use types::problem::Problem;

use super::{NextStep, Request, Visitor};
use crate::agents::{OpenError, StreamOrigin};
use crate::edge::access_record::Outcome;
use crate::edge::headers::forwarding::{add_timing, write_interim, write_response};
use crate::edge::headers::identity::ReservedNames;
use crate::edge::http1::copy::{BodyCopy, CopyError, Framing, malformed_reason};
use crate::edge::http1::interim::InterimBytes;
use crate::edge::http1::to_http2::{self, Http2Upload};
use crate::edge::http1::upgrade;
use crate::edge::response_timeout::{Progress, ResponseTimeout, await_with_timeout};
use crate::edge::upstream;
use crate::edge::upstream::{ConnectError, Connection, Http1, UpstreamIo};

/// Limits of the interim responses (RFC 9110, 15.2) before the final one. Real services send one or
/// two. They stay in memory while the visitor does not read, so that all of them may have the size
/// of one head.
const MAX_INTERIM: usize = 16;
const MAX_INTERIM_BYTES: usize = 32 * 1024;

/// Number and size of the interim responses to one request.
#[derive(Debug, Default)]
pub(in crate::edge) struct InterimCount {
    responses: usize,
    bytes: usize,
}

impl InterimCount {
    /// Counts an interim response whose head has this size.
    ///
    /// # Errors
    /// The service has sent too many, with the reason.
    pub(in crate::edge) fn add(&mut self, head_len: usize) -> Result<(), &'static str> {
        self.responses += 1;
        self.bytes = self.bytes.saturating_add(head_len);
        if self.responses > MAX_INTERIM {
            return Err("too many interim responses");
        }
        if self.bytes > MAX_INTERIM_BYTES {
            return Err("the interim responses are too large");
        }
        Ok(())
    }

    pub(in crate::edge) fn is_zero(&self) -> bool {
        self.responses == 0
    }
}

/// Error for a 101 response to a request without an upgrade.
pub(in crate::edge) const UNEXPECTED_UPGRADE: &str = "the service changed protocols unasked";

/// Serves one request completely.
pub(in crate::edge) async fn run(
    visitor: &mut Visitor,
    mut request: Request,
    interim: &mut InterimBytes,
) -> NextStep {
    let started = Instant::now();
    let mut bypass_pool = false;
    // A request that is sent again.
    let mut upload = None;
    loop {
        let connected = connect(visitor, &request, bypass_pool).await;
        let connection = match connected {
            Ok(connection) => connection,
            Err(error) => {
                if request.fail_over(&visitor.worker) {
                    continue;
                }
                request.record.set_failure(error.to_string());
                return refuse_after(interim, visitor, request, &problem_of(&error)).await;
            }
        };
        request.record.mark_stream_opened();
        let peer = (&mut *visitor, &mut *interim);
        let ended = match (connection, upload.take()) {
            (Connection::Http1(io), None) => {
                let exchange = Exchange::new(peer, &mut request, io, None);
                exchange.run(started).await
            }
            (Connection::Http1(io), Some(SentRequest::Http1(sent))) => {
                let exchange = Exchange::new(peer, &mut request, io, Some(sent));
                exchange.run(started).await
            }
            (Connection::Http2(http2), sent) => match to_http2::upload_of(sent, &mut request) {
                Ok(sent) => to_http2::run(peer, &mut request, (http2, sent), started).await,
                Err(reason) => request.fail(reason),
            },
            (Connection::Http1(_), Some(SentRequest::Http2(_))) => {
                request.fail(to_http2::OTHER_VERSION)
            }
        };
        match ended {
            ExchangeOutcome::Next(next) => return next,
            ExchangeOutcome::Upgraded(upstream, head) => {
                return upgrade::run(visitor, request, upstream, head).await;
            }
            ExchangeOutcome::Refused(problem) => {
                return refuse_after(interim, visitor, request, &problem).await;
            }
            ExchangeOutcome::NotForwarded(whole, refusal) => {
                upload = Some(SentRequest::Http1(whole));
                if !request.fail_over(&visitor.worker) {
                    request.record.set_unreachable(refusal.text().to_owned());
                    let problem = upstream::problem_of_refusal(&request.admitted.tunnel, &refusal);
                    return refuse_after(interim, visitor, request, &problem).await;
                }
            }
            ExchangeOutcome::Retry(whole, reason) => {
                upload = whole;
                // The request is retried once on a new connection to the same agent. After a second
                // failure another agent is tried.
                if !bypass_pool {
                    bypass_pool = true;
                } else if request.fail_over(&visitor.worker) {
                    bypass_pool = false;
                } else {
                    request.record.set_failure(reason);
                    let problem = Problem::upstream_unreachable();
                    return refuse_after(interim, visitor, request, &problem).await;
                }
            }
        }
    }
}

async fn connect(
    visitor: &Visitor,
    request: &Request,
    bypass_pool: bool,
) -> Result<Connection, ConnectError> {
    let (worker, tunnel) = (&visitor.worker, &request.admitted.tunnel);
    let origin = StreamOrigin {
        source: visitor.connection.address(),
        reference: request.record.reference(),
        is_terminated: true,
    };
    if request.admitted.upgrade.is_some() {
        let io = upstream::connect_http1(worker, tunnel, origin).await?;
        return Ok(Connection::Http1(io));
    }
    upstream::connect(worker, tunnel, origin, bypass_pool).await
}

/// Sends an error response of the edge.
pub(in crate::edge) async fn refuse(
    visitor: &mut Visitor,
    request: Request,
    problem: &Problem,
) -> NextStep {
    refuse_after(&mut InterimBytes::default(), visitor, request, problem).await
}

/// The same, after the rest of an interim response.
async fn refuse_after(
    interim: &mut InterimBytes,
    visitor: &mut Visitor,
    mut request: Request,
    problem: &Problem,
) -> NextStep {
    let answer = request
        .record
        .problem_answer(problem, request.admitted.error_format);
    // A part of the body may be unread, so the start of the next request is unknown.
    let bodiless = BodyReader::from(request.body).is_done();
    let keep_alive = request.response_format.keep_alive && bodiless;
    let is_head = request.admitted.is_head;
    visitor
        .write_answer_after(interim, &answer, (is_head, keep_alive))
        .await
}

/// The response to the visitor if there is no connection.
pub(in crate::edge) fn problem_of(error: &ConnectError) -> Problem {
    match error {
        ConnectError::Open(OpenError::Full) => Problem::unavailable(),
        ConnectError::Open(OpenError::Deadline) | ConnectError::Deadline => {
            Problem::upstream_timeout()
        }
        ConnectError::Open(OpenError::PeerDisconnected) => {
            Problem::tunnel_offline(upstream::PEER_RETRY)
        }
        // The code is that of every failed handshake, also if the agent opens the TLS session.
        ConnectError::Plaintext => Problem::upstream_unreachable().with_detail(error.to_string()),
        ConnectError::Open(OpenError::AgentDisconnected | OpenError::Refused(_))
        | ConnectError::Tls(_)
        | ConnectError::Http2(_) => Problem::upstream_unreachable(),
    }
}

/// Both directions of a request.
struct Exchange<'v> {
    visitor: &'v mut Visitor,
    request: &'v mut Request,
    upstream: Http1,
    upload: BodyCopy,
    upload_state: UploadState,
    /// Bytes of the response that were scanned without finding the end of the head.
    scanned: usize,
    interim_count: InterimCount,
    /// Interim responses that are being sent to the visitor.
    interim: &'v mut InterimBytes,
}

#[derive(Debug, PartialEq)]
enum UploadState {
    Sending,
    Sent,
    /// The service accepts no more of the request. Its response may still be available.
    Refused,
}

/// Result of a request on one connection to a service.
pub(in crate::edge) enum ExchangeOutcome {
    Next(NextStep),
    Upgraded(Http1, Vec<u8>),
    Refused(Problem),
    /// The agent reports that no service received the request. Contains the request and the reason.
    NotForwarded(Box<BodyCopy>, wire::Error),
    /// The connection closed before any response, and the request may be sent again. Contains the
    /// request, unless it is still in [`Request::admitted`], and the reason.
    Retry(Option<SentRequest>, String),
}

/// A request that was sent on a connection, and is sent again.
pub(in crate::edge) enum SentRequest {
    Http1(Box<BodyCopy>),
    Http2(Box<Http2Upload>),
}

/// Result of waiting for a response head.
enum HeadOutcome {
    Final(Response),
    Upgraded(Vec<u8>),
    VisitorGone,
    /// The connection failed, with the reason.
    ConnectionFailed(String),
    InvalidHead(&'static str),
    /// The visitor's body is malformed.
    InvalidBody(&'static str),
}

/// A response whose head is ready for the visitor.
struct Response {
    head: Vec<u8>,
    body: ResponseBody,
    framing: Framing,
    /// The service's connection can be used again.
    reusable: bool,
    /// The service closes the connection if it has been idle for this time.
    announced: Option<Duration>,
    /// The visitor's connection can be used again.
    keep_alive: bool,
}

impl<'v> Exchange<'v> {
    /// `upload` is a request that was not sent completely on another connection.
    fn new(
        (visitor, interim): (&'v mut Visitor, &'v mut InterimBytes),
        request: &'v mut Request,
        mut upstream: Http1,
        upload: Option<Box<BodyCopy>>,
    ) -> Self {
        let is_reused = upstream.io.stream_mut().begin_exchange();
        let upload = upload.map_or_else(
            || {
                let head = std::mem::take(&mut request.admitted.head);
                let reader = BodyReader::from(request.body);
                let source = Source::from(visitor.connection.source);
                let upload = BodyCopy::with_reserved(
                    source,
                    head,
                    reader,
                    Framing::Same,
                    &mut visitor.io,
                    ReservedNames::of(&request.admitted.tunnel.policy),
                );
                if is_reused {
                    upload.with_replay()
                } else {
                    upload
                }
            },
            |upload| *upload,
        );
        Self {
            visitor,
            request,
            upstream,
            upload,
            upload_state: UploadState::Sending,
            scanned: 0,
            interim_count: InterimCount::default(),
            interim,
        }
    }

    async fn run(mut self, started: Instant) -> ExchangeOutcome {
        let tunnel = &self.request.admitted.tunnel;
        let period = ResponseTimeout::for_tunnel(tunnel, &self.visitor.worker.core.config);
        let waiting = await_with_timeout(started, period, |cx| {
            let answer = self.poll_answer(cx);
            self.request.record.set_bytes(self.upload.written(), 0);
            let progress = Progress {
                count: self.upload.written(),
                waits_for_visitor: self.upload_state == UploadState::Sending
                    && !self.upload.waits_for_sink(),
            };
            (answer, progress)
        });
        match waiting.await {
            Some(HeadOutcome::Final(response)) => self.respond(response).await,
            Some(HeadOutcome::Upgraded(head)) => ExchangeOutcome::Upgraded(self.upstream, head),
            Some(HeadOutcome::VisitorGone) => ExchangeOutcome::Next(NextStep::Abort),
            Some(HeadOutcome::InvalidHead(reason)) => {
                self.request.record.set_failure(reason);
                ExchangeOutcome::Refused(self.upstream.io.refuse_response(reason))
            }
            Some(HeadOutcome::InvalidBody(reason)) => {
                // The service gets an incomplete request.
                ExchangeOutcome::Refused(self.request.malformed_body(reason))
            }
            Some(HeadOutcome::ConnectionFailed(reason)) => self.on_connection_failed(reason).await,
            None => {
                self.request.record.set_failure("no answer in time");
                ExchangeOutcome::Refused(Problem::upstream_timeout())
            }
        }
    }

    /// Handles a connection that closed before the response head. The request is sent again only if
    /// that cannot execute it twice: nothing of a response was received, what was sent is still in
    /// memory, and the method is idempotent or the agent reports that the service received nothing.
    async fn on_connection_failed(mut self, reason: String) -> ExchangeOutcome {
        if self.upload.is_read() {
            // The next request may follow a response of the edge.
            self.request.body = http1::BodyLength::Empty;
        }
        let refusal = self.upstream.io.refusal();
        let silent = self.upstream.unread().is_empty() && self.interim_count.is_zero();
        let tunnel = &self.request.admitted.tunnel;
        if let Some(refusal) = refusal {
            tunnel.health.record_failure();
            if let Some(upload) = self.upload.rewind() {
                return ExchangeOutcome::NotForwarded(Box::new(upload), refusal);
            }
            let problem = upstream::problem_of_refusal(tunnel, &refusal);
            self.request
                .record
                .set_unreachable(refusal.text().to_owned());
            return ExchangeOutcome::Refused(problem);
        }
        let idempotent = self.request.admitted.idempotent;
        let is_replayable = silent && self.upload.is_replayable();
        let is_undelivered =
            is_replayable && !idempotent && self.upstream.io.is_undelivered().await;
        if !is_undelivered {
            self.upstream.io.report_no_response();
        }
        if is_replayable
            && (idempotent || is_undelivered)
            && let Some(upload) = self.upload.rewind()
        {
            return ExchangeOutcome::Retry(Some(SentRequest::Http1(Box::new(upload))), reason);
        }
        self.request.record.set_failure(reason);
        ExchangeOutcome::Refused(Problem::upstream_unreachable())
    }

    /// Sends the request and waits for the head of the final response.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<HeadOutcome> {
        if let Err(error) = self.poll_upload(cx) {
            return Poll::Ready(match malformed_reason(&error) {
                Some(reason) => HeadOutcome::InvalidBody(reason),
                None => HeadOutcome::VisitorGone,
            });
        }
        loop {
            let written = self.interim.poll_write(cx, &mut self.visitor.io.io);
            if written.is_err() {
                return Poll::Ready(HeadOutcome::VisitorGone);
            }
            let unread = self.upstream.unread();
            let limits = Limits::default();
            if unread.len() > self.scanned && may_complete(unread, self.scanned, &limits) {
                match self.take_head(&limits) {
                    Ok(Some(answered)) => return Poll::Ready(answered),
                    // An interim response was taken. The next head may be available already.
                    Ok(None) if self.scanned == 0 => continue,
                    Ok(None) => {}
                    Err(reason) => return Poll::Ready(HeadOutcome::InvalidHead(reason)),
                }
            }
            self.scanned = self.upstream.unread().len();
            match self.upstream.poll_more(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => {
                    return Poll::Ready(HeadOutcome::ConnectionFailed(
                        "the service closed".to_owned(),
                    ));
                }
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(HeadOutcome::ConnectionFailed(error.to_string()));
                }
                Poll::Pending => break,
            }
        }
        if self.upload_state != UploadState::Sending && self.visitor.poll_hang_up(cx).is_ready() {
            return Poll::Ready(HeadOutcome::VisitorGone);
        }
        self.upload.poll_replay_expiry(cx);
        Poll::Pending
    }

    /// Sends available bytes of the request. An error means that the visitor disconnected or that
    /// the body is malformed.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.upload_state != UploadState::Sending {
            return Ok(());
        }
        match self
            .upload
            .poll(cx, &mut self.visitor.io, &mut self.upstream.io)
        {
            Poll::Ready(Ok(())) => self.upload_state = UploadState::Sent,
            Poll::Ready(Err(CopyError::Sink)) => self.upload_state = UploadState::Refused,
            Poll::Ready(Err(CopyError::Source(error))) => return Err(error),
            Poll::Pending => {}
        }
        Ok(())
    }

    /// Takes a head from the service's bytes. `None` if it is incomplete, or an interim response.
    fn take_head(&mut self, limits: &Limits) -> Result<Option<HeadOutcome>, &'static str> {
        let mut slots = Slots::new();
        let is_head = self.request.admitted.is_head;
        let parsed = parse_response(self.upstream.unread(), limits, is_head, &mut slots);
        let http1::Progress::Complete { head, head_len } = parsed.map_err(|bad| bad.reason)? else {
            self.scanned = self.upstream.unread().len();
            return Ok(None);
        };
        let answered = match head.status {
            101 => {
                let upgrade = self.request.admitted.upgrade.as_ref();
                upgrade.ok_or(UNEXPECTED_UPGRADE)?.check(&head)?;
                if self.upload_state != UploadState::Sent {
                    return Err("the service changed protocols before it had the request");
                }
                let mut out = self.interim.take_unsent();
                write_interim(&mut out, &head);
                self.request.record.set_status(101);
                Some(HeadOutcome::Upgraded(out))
            }
            100..=199 => {
                self.interim_count.add(head_len)?;
                self.upload.end_replay();
                // RFC 9110, 15.2: an HTTP/1.0 client gets no interim responses.
                if self.request.response_format.version == http1::Version::Http11 {
                    write_interim(self.interim.bytes_mut(), &head);
                }
                None
            }
            status => {
                let mut out = self.interim.take_unsent();
                let (framing, keep_alive) =
                    write_response(&mut out, &head, self.request.response_format);
                if self.request.admitted.server_timing {
                    add_timing(&mut out, &self.request.record);
                }
                self.request.record.set_status(status);
                Some(HeadOutcome::Final(Response {
                    head: out,
                    body: head.body,
                    framing,
                    // After a refused upgrade the connection is not reused, because other requests
                    // of the tunnel may use another HTTP version.
                    reusable: head.keep_alive
                        && head.body != ResponseBody::UntilClose
                        && self.request.admitted.upgrade.is_none(),
                    announced: head.keep_alive_timeout(),
                    keep_alive,
                }))
            }
        };
        self.upstream.consume(head_len);
        self.scanned = 0;
        Ok(answered)
    }

    /// Sends the response, while the rest of the request is still being sent.
    async fn respond(mut self, response: Response) -> ExchangeOutcome {
        self.request.admitted.tunnel.health.record_success();
        self.request.record.mark_first_byte();
        self.upload.end_replay();
        let reader = BodyReader::from(response.body);
        let source = Source::from(self.visitor.connection.source);
        let Response { head, framing, .. } = response;
        let mut download = BodyCopy::new(source, head, reader, framing, &mut self.upstream);
        let mut is_request_broken = false;
        let copying = poll_fn(|cx| {
            // A visitor that aborts its request still gets the response in progress.
            if self.poll_upload(cx).is_err() {
                self.upload_state = UploadState::Refused;
                is_request_broken = true;
            }
            let copied = download.poll(cx, &mut self.upstream, &mut self.visitor.io.io);
            self.request
                .record
                .set_bytes(self.upload.written(), download.written());
            if copied.is_pending()
                && self.upload_state == UploadState::Sent
                && self.visitor.poll_hang_up(cx).is_ready()
            {
                return Poll::Ready(Err(CopyError::Sink));
            }
            copied
        });
        let copied = copying.await;
        match copied {
            Ok(()) => {
                self.request.record.set_outcome(Outcome::Served);
                let sent = self.upload_state == UploadState::Sent;
                let worker = &self.visitor.worker;
                if sent {
                    self.upstream.io.stream_mut().end_exchange();
                    if response.reusable && self.upstream.unread().is_empty() {
                        let tunnel = self.request.admitted.tunnel.view.id;
                        upstream::keep(worker, tunnel, self.upstream, response.announced);
                    }
                } else if !is_request_broken {
                    // The service may have closed or reset its connection after an early response.
                    let mut upload = self.upload;
                    let rest =
                        move |cx: &mut Context<'_>, io: &mut UpstreamIo| upload.poll_rest(cx, io);
                    worker.spawn(upstream::end_early(self.upstream, rest));
                }
                let next = if sent && response.keep_alive {
                    NextStep::Request
                } else {
                    NextStep::Close
                };
                ExchangeOutcome::Next(next)
            }
            Err(CopyError::Sink) => ExchangeOutcome::Next(NextStep::Abort),
            Err(CopyError::Source(error)) => {
                // The connection is aborted so that the visitor does not mistake the partial
                // response for a complete one.
                self.upstream.io.report_no_response();
                self.request.record.set_failure(error.to_string());
                ExchangeOutcome::Next(NextStep::Abort)
            }
        }
    }
}
