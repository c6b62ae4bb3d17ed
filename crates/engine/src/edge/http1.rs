//! HTTP/1.1 visitors. One task serves the requests of a connection in turn.

pub(super) mod buffered;
pub(super) mod copy;
pub(super) mod exchange;
pub(super) mod interim;
pub(super) mod to_http2;
pub(super) mod upgrade;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http1::{
    BodyLength, EncodedLine, Limits, Progress, Protocols, Slots, Version, may_complete,
    parse_request,
};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout, timeout_at};
use transport::TlsStream;
use types::problem::Problem;

use self::buffered::BufferedStream;
use self::exchange::ExchangeOutcome;
use self::interim::InterimBytes;
use super::access_record::{AccessRecord, Outcome};
use super::connection_info::ConnectionInfo;
use super::revocation;
use super::routing::{AdmittedRequest, Rejection, RequestInfo, route_and_authorize};
use crate::access::PasswordVerdict;
use crate::core::Worker;
use crate::edge::builtin::terminal;
use crate::edge::headers::forwarding::ResponseFormat;
use crate::edge::response::error_format::ErrorFormat;
use crate::edge::response::local_response::EdgeResponse;

/// Time limit of a head, from its first byte to its last.
const HEAD_DEADLINE: Duration = Duration::from_secs(15);

/// Serves one connection until it closes.
pub(crate) async fn serve(stream: TlsStream, info: ConnectionInfo, worker: Arc<Worker>) {
    let mut visitor = Visitor {
        io: BufferedStream::new(stream),
        connection: info,
        worker,
    };
    // A flag of this function takes no memory, and one of the visitor would take a word.
    let mut is_new = true;
    loop {
        let next = match visitor.next_request(is_new).await {
            Some(parsed) => {
                is_new = false;
                visitor.io.io.get_mut().0.begin_message();
                // The future is boxed and dropped after the request, so that an idle connection
                // reserves no memory for it.
                Box::pin(visitor.answer(parsed)).await
            }
            None => NextStep::Close,
        };
        if next == NextStep::Abort {
            return;
        }
        visitor.io.io.get_mut().0.end_message();
        if next == NextStep::Close {
            return visitor.io.close().await;
        }
    }
}

/// A visitor's connection.
pub(super) struct Visitor {
    pub(super) io: BufferedStream<TlsStream>,
    pub(super) connection: ConnectionInfo,
    pub(super) worker: Arc<Worker>,
}

/// The next step for the connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    Request,
    /// The connection is closed after the written response.
    Close,
    /// The connection is aborted, so that the visitor detects an incomplete response.
    Abort,
}

/// A request whose head was parsed and authorised.
pub(super) struct ParsedRequest {
    verdict: Result<AdmittedRequest, Rejection>,
    pub(super) body: BodyLength,
    pub(super) response_format: ResponseFormat,
    is_head: bool,
    expects_continue: bool,
    pub(super) record: AccessRecord,
}

impl Visitor {
    /// Waits for the next request. `None` if the visitor has disconnected or exceeded a time limit,
    /// or if the engine drains and no request is in flight. A new connection then has some time for
    /// its first request.
    async fn next_request(&mut self, is_new: bool) -> Option<ParsedRequest> {
        let idle = self.worker.core.config.timeouts.http_idle;
        let mut scanned = 0;
        // The deadline applies to the whole head, so that a visitor cannot extend it by sending
        // single bytes.
        let mut head_deadline = None;
        loop {
            let unread = self.io.unread().len();
            if unread > scanned
                && may_complete(self.io.unread(), scanned, &self.limits())
                && let Some(parsed) = self.read_head(None)
            {
                return Some(parsed);
            }
            scanned = unread;
            let more = poll_fn(|cx| self.io.poll_more(cx));
            let deadline = if unread == 0 {
                Instant::now() + idle
            } else {
                *head_deadline.get_or_insert_with(|| Instant::now() + HEAD_DEADLINE)
            };
            // No value is borrowed while an idle connection waits, because it would take memory
            // there.
            let waits_for_first = unread == 0 && is_new && self.worker.drain.is_cancelled();
            let deadline = if waits_for_first {
                let limit = self.worker.core.config.timeouts.fixed.first_request;
                deadline.min(Instant::now() + limit)
            } else {
                deadline
            };
            let read = tokio::select! {
                read = timeout_at(deadline, more) => read,
                () = self.worker.drain.cancelled(), if unread == 0 && !waits_for_first => {
                    if is_new {
                        continue;
                    }
                    return None;
                }
            };
            if !matches!(read, Ok(Ok(true))) {
                return None;
            }
        }
    }

    fn limits(&self) -> Limits {
        let limits = &self.worker.core.config.limits;
        Limits {
            head_bytes: limits.header_bytes,
            target_bytes: limits.url_bytes,
            ..Limits::default()
        }
    }

    /// Parses the head at the start of the unread bytes and authorises the request. `None` while
    /// the head is incomplete. If its link password has to be checked, the head stays unread, and
    /// is read again with the result.
    fn read_head(&mut self, password: Option<&PasswordVerdict>) -> Option<ParsedRequest> {
        let limits = self.limits();
        let mut record = AccessRecord::start(&self.worker, "http", self.connection.source);
        let mut slots = Slots::new();
        let (parsed, consumed) = match parse_request(self.io.unread(), &limits, &mut slots) {
            Ok(Progress::Partial) => {
                record.discard();
                return None;
            }
            Ok(Progress::Complete { head, head_len }) => {
                let inbound = RequestInfo {
                    method: head.method,
                    target: head.target,
                    authority: head.authority,
                    body: head.body,
                    upgrade: head.upgrade.and_then(Protocols::only),
                    connection: &self.connection,
                    password,
                };
                let verdict =
                    route_and_authorize(&inbound, &head.fields, &self.worker.core, &mut record);
                let is_waiting = matches!(verdict, Err(Rejection::VerifyPassword(_)));
                let draining = self.worker.drain.is_cancelled();
                let down = ResponseFormat {
                    version: head.version,
                    keep_alive: head.keep_alive && !draining,
                };
                let is_head = head.method == http1::Method::Head;
                (
                    ParsedRequest {
                        verdict,
                        body: head.body,
                        response_format: down,
                        is_head,
                        expects_continue: head.expect_continue,
                        record,
                    },
                    if is_waiting { 0 } else { head_len },
                )
            }
            Err(refusal) => {
                // Bytes from 0x80 in the target are encoded before the decision.
                match http1::encode_request_line(self.io.unread()) {
                    EncodedLine::Encoded { line, len } => {
                        record.discard();
                        self.io.replace(len, line);
                        return self.read_head(password);
                    }
                    EncodedLine::Partial if self.io.unread().len() < limits.target_bytes => {
                        record.discard();
                        return None;
                    }
                    EncodedLine::Partial | EncodedLine::Unchanged => {}
                }
                record.set_rule("http", Some(refusal.reason.into()));
                record.set_outcome(Outcome::Refused);
                let problem = Problem::new(refusal.status, refusal.code, refusal.reason);
                let down = ResponseFormat {
                    version: Version::Http11,
                    keep_alive: false,
                };
                let answer = record.problem_answer(&problem, ErrorFormat::Json);
                let verdict = Err(Rejection::Answer(answer));
                let body = BodyLength::Empty;
                (
                    ParsedRequest {
                        verdict,
                        body,
                        response_format: down,
                        is_head: false,
                        expects_continue: false,
                        record,
                    },
                    0,
                )
            }
        };
        self.io.consume(consumed);
        Some(parsed)
    }

    async fn answer(&mut self, mut parsed: ParsedRequest) -> NextStep {
        if let Err(Rejection::VerifyPassword(check)) = parsed.verdict {
            let password = self.worker.core.link_passwords.verify(*check).await;
            let Some(mut again) = self.read_head(Some(&password)) else {
                return NextStep::Abort;
            };
            // The check is part of the visit.
            again.record.resume(parsed.record);
            parsed = again;
        }
        let ParsedRequest {
            verdict,
            body,
            response_format: down,
            is_head,
            expects_continue,
            record,
        } = parsed;
        match verdict {
            Ok(forward) => {
                let request = Request {
                    admitted: forward,
                    body,
                    response_format: down,
                    expects_continue,
                    record,
                };
                if request.admitted.terminal.is_some() {
                    // The terminal session ends on revocation, and closes the connection in order.
                    return terminal::run(self, request).await;
                }
                let signal = request.record.revocation();
                let error_format = request.admitted.error_format;
                let mut interim = InterimBytes::default();
                let ended = tokio::select! {
                    // Dropping the exchange closes the connection to the service. Its record
                    // contains the reason.
                    biased;
                    next = exchange::run(self, request, &mut interim) => Some(next),
                    () = revocation::revoked(signal.as_deref()) => None,
                };
                if let Some(next) = ended {
                    return next;
                }
                let Some(problem) = signal.and_then(|signal| signal.problem()) else {
                    return NextStep::Abort;
                };
                let footer = &self.worker.core.page_footer;
                let answer = EdgeResponse::problem(&problem, error_format, footer);
                self.write_answer_after(&mut interim, &answer, (is_head, false))
                    .await
            }
            // A request is checked once.
            Err(Rejection::VerifyPassword(_)) => NextStep::Abort,
            Err(Rejection::Answer(answer)) => {
                let has_body = !matches!(body, BodyLength::Empty | BodyLength::Length(0));
                self.write_answer(&answer, is_head, down.keep_alive && !has_body)
                    .await
            }
        }
    }

    /// Ready when the visitor has closed. A next request that it sends early is kept as unread.
    pub(super) fn poll_hang_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.io.poll_hang_up(cx)
    }

    /// Writes a response of the edge itself.
    pub(super) async fn write_answer(
        &mut self,
        answer: &EdgeResponse,
        is_head: bool,
        keep_alive: bool,
    ) -> NextStep {
        let mut interim = InterimBytes::default();
        self.write_answer_after(&mut interim, answer, (is_head, keep_alive))
            .await
    }

    /// The same, after the rest of an interim response that the visitor has received partly.
    async fn write_answer_after(
        &mut self,
        interim: &mut InterimBytes,
        answer: &EdgeResponse,
        (is_head, keep_alive): (bool, bool),
    ) -> NextStep {
        let mut bytes = interim.take_rest();
        bytes.extend_from_slice(&answer.to_http1(is_head, !keep_alive));
        match self.write(&bytes).await {
            Ok(()) if keep_alive => NextStep::Request,
            Ok(()) => NextStep::Close,
            Err(_) => NextStep::Abort,
        }
    }

    /// Sends `100 Continue` to a visitor that waits for it before it sends the body.
    ///
    /// # Errors
    /// The visitor has disconnected.
    pub(super) async fn send_continue(&mut self) -> io::Result<()> {
        self.write(b"HTTP/1.1 100 Continue\r\n\r\n").await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let writing = async {
            self.io.io.write_all(bytes).await?;
            self.io.io.flush().await
        };
        timeout(HEAD_DEADLINE, writing).await?
    }
}

impl Request {
    /// Like [`AdmittedRequest::fail_over`].
    pub(super) fn fail_over(&mut self, worker: &Worker) -> bool {
        self.admitted.fail_over(&worker.core, &mut self.record)
    }

    /// Records a failure of the service.
    fn fail(&mut self, reason: &'static str) -> ExchangeOutcome {
        self.record.set_failure(reason);
        ExchangeOutcome::Refused(Problem::upstream_unreachable())
    }

    /// Records that the body is malformed. Returns the response to the visitor.
    fn malformed_body(&mut self, reason: &'static str) -> Problem {
        self.record.set_rule("http", Some(reason.into()));
        self.record.set_outcome(Outcome::Refused);
        Problem::invalid_request(format!("the body is malformed: {reason}"))
    }
}

/// A request that is forwarded to a service.
pub(super) struct Request {
    pub(super) admitted: AdmittedRequest,
    pub(super) body: BodyLength,
    pub(super) response_format: ResponseFormat,
    /// The visitor may wait for `100 Continue` before it sends the body (RFC 9110, 10.1.1).
    pub(super) expects_continue: bool,
    pub(super) record: AccessRecord,
}
