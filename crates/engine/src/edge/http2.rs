//! HTTP/2 visitors.

pub(super) mod body;
pub(super) mod body_sender;
mod connection;
pub(super) mod held_body;
pub(super) mod in_flight;
mod keep_alive;
pub(super) mod requests;
pub(super) mod slow_reader_timeout;
mod stream;
mod upgraded_stream;
mod visitor_body;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use daemon::connections::source_network;
use h2::ext::Protocol;
use h2::server::{Builder, Handshake};
use http::header::{ACCEPT, HeaderValue};
use http::uri::Scheme;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use http1::{Authority, BodyLength, MethodError, RequestTarget};
use tokio::time::{Instant, sleep_until};
use transport::TlsStream;
use types::problem::Problem;

use self::connection::VisitorConnection;
use self::in_flight::InFlightRequests;
use self::keep_alive::PONG;
use self::requests::DownstreamBody;
use self::slow_reader_timeout::StreamExecutor;
use self::stream::{InterimSender, RequestContent};
use super::access_record::{AccessRecord, Outcome};
use super::connection_info::ConnectionInfo;
use super::revocation;
use super::routing::{AdmittedRequest, Rejection, RequestInfo, route_and_authorize};
use crate::access::PasswordVerdict;
use crate::core::Worker;
use crate::edge::builtin::terminal;
use crate::edge::response::error_format::ErrorFormat;
use crate::edge::response::local_response::EdgeResponse;
use crate::limits::VisitCount;
use crate::listen::is_trusted;
use daemon::head_size;

/// Limit of concurrent requests of one visitor. Browsers use fewer.
const STREAMS: u32 = 256;

/// Limit of streams that a visitor reset before they were accepted. Faster resets are an attack
/// (rapid reset), and the connection is closed.
const RESETS: usize = 32;

/// Limit of the size of a frame, the smallest that HTTP/2 allows (RFC 9113, 4.2).
const FRAME: u32 = 16 * 1024;

/// Limit of response bytes that are buffered for one stream of a slow visitor.
const SEND_BUFFER: usize = 256 * 1024;

/// Windows of request bytes in flight: enough for 50 MB/s over 20 ms.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// Serves one connection until it closes.
pub(crate) async fn serve(stream: TlsStream, info: ConnectionInfo, worker: Arc<Worker>) {
    let activity = Arc::new(InFlightRequests::default());
    let core = &worker.core;
    let is_proxy = is_trusted(&core.config.trusted_proxies, info.source);
    let visits = (!is_proxy).then(|| core.source_visits.counter_for(source_network(info.source)));
    let visitor = Arc::new(Visitor {
        visits,
        connection: info,
        worker: Arc::clone(&worker),
        activity: Arc::clone(&activity),
    });
    let timeouts = &worker.core.config.timeouts;
    let first_until = Instant::now() + timeouts.fixed.first_request;
    let accepted = tokio::select! {
        biased;
        accepted = handshake(stream, worker.core.config.limits.header_bytes) => accepted,
        // The client never started HTTP/2.
        () = activity.idle_for(timeouts.http_idle) => return,
        // There is no request to wait for.
        () = async {
            worker.drain.cancelled().await;
            sleep_until(first_until).await;
        } => return,
    };
    // An error needs no handling: the visitor has been informed, or is gone.
    let Ok(connection) = accepted else { return };
    let streams = StreamExecutor::new(timeouts.visitor_stall);
    let mut connection = VisitorConnection::new(connection, visitor, streams);
    tokio::select! {
        () = &mut connection => {}
        () = worker.drain.cancelled() => {
            connection.graceful_shutdown();
            (&mut connection).await;
        }
        () = activity.idle_for(timeouts.http_idle) => {
            connection.graceful_shutdown();
            tokio::select! {
                () = &mut connection => {}
                // The client does not finish the shutdown.
                () = activity.idle_for(PONG) => {}
            }
        }
    }
}

/// Starts HTTP/2 with the limits of a connection.
fn handshake(stream: TlsStream, header_bytes: usize) -> Handshake<TlsStream> {
    Builder::new()
        .enable_connect_protocol()
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(RESETS)
        .max_header_list_size(head_size::hard(header_bytes))
        .max_frame_size(FRAME)
        .max_send_buffer_size(SEND_BUFFER)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(stream)
}

/// A visitor's connection.
#[derive(Debug)]
struct Visitor {
    /// Visits of the same source address. `None` for a proxy that does not send addresses.
    visits: Option<Arc<VisitCount>>,
    connection: ConnectionInfo,
    worker: Arc<Worker>,
    activity: Arc<InFlightRequests>,
}

impl Visitor {
    /// Serves a request. Interim responses are sent with `interim`. An error resets its stream.
    async fn answer(
        &self,
        request: Request<RequestContent>,
        interim: &InterimSender,
    ) -> io::Result<Response<DownstreamBody>> {
        let mut record = AccessRecord::start(&self.worker, "http", self.connection.source);
        record.track_in_flight(&self.activity);
        let is_head = request.method() == Method::HEAD;
        match self.visits.as_ref().map(VisitCount::enter).transpose() {
            Ok(visit) => visit.map(|visit| record.track_source(visit)),
            Err(busy) => {
                let answer = malformed(&request, &mut record, &busy.into());
                return Ok(refusal(answer, is_head));
            }
        };
        let mut verdict = self.authorize(&request, None, &mut record);
        if let Err(Rejection::VerifyPassword(check)) = verdict {
            // The future is boxed, because few requests need it.
            let password = Box::pin(self.worker.core.link_passwords.verify(*check)).await;
            verdict = self.authorize(&request, Some(&password), &mut record);
        }
        let forward = match verdict {
            Ok(forward) => forward,
            Err(Rejection::Answer(answer)) => return Ok(refusal(answer, is_head)),
            // A request is checked once.
            Err(Rejection::VerifyPassword(_)) => {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        };
        if forward.terminal.is_some() {
            record.set_outcome(Outcome::Refused);
            let problem = Problem::upgrade_required().with_detail(terminal::HTTP1);
            return Ok(refusal(
                record.problem_answer(&problem, forward.error_format),
                is_head,
            ));
        }
        let signal = record.revocation();
        let error_format = forward.error_format;
        let (worker, source) = (&self.worker, self.connection.address());
        let length = body_length(&request);
        let answering = async {
            match request.into_body() {
                RequestContent::Upgrade(upgraded) => {
                    requests::upgrade(worker, source, forward, upgraded, record, interim).await
                }
                RequestContent::Body(body) => {
                    let body = (length != BodyLength::Empty).then_some((body, length));
                    requests::run(worker, source, forward, body, record, interim).await
                }
            }
        };
        tokio::select! {
            // Revocation is checked here until the response starts, and then by its body. Dropping
            // the future closes the connection to the service. The record contains the reason.
            biased;
            response = answering => Ok(response),
            () = revocation::revoked(signal.as_deref()) => {
                let problem = signal.and_then(|signal| signal.problem());
                let problem = problem.ok_or(io::ErrorKind::PermissionDenied)?;
                let footer = &worker.core.page_footer;
                Ok(refusal(EdgeResponse::problem(&problem, error_format, footer), is_head))
            }
        }
    }

    /// Checks the request as strictly as an HTTP/1.1 request, then routes and authorises it.
    fn authorize(
        &self,
        request: &Request<RequestContent>,
        password: Option<&PasswordVerdict>,
        record: &mut AccessRecord,
    ) -> Result<AdmittedRequest, Rejection> {
        let protocol = request.extensions().get::<Protocol>();
        let malformed = |record: &mut AccessRecord, problem: &Problem| {
            Rejection::Answer(malformed(request, record, problem))
        };
        let invalid = |reason: &'static str| Problem::invalid_request(reason);
        if head_size::is_too_large(request, self.worker.core.config.limits.header_bytes) {
            return Err(malformed(record, &Problem::header_fields_too_large()));
        }
        // In HTTP/2, extended CONNECT takes the place of an upgrade (RFC 8441).
        let method = match (request.method(), protocol) {
            (&Method::CONNECT, Some(_)) => Ok(http1::Method::Get),
            (method, _) => http1::Method::parse(method.as_str()),
        };
        let method = method.map_err(|bad| match bad {
            MethodError::Malformed => malformed(record, &invalid("the method is malformed")),
            MethodError::NotImplemented => malformed(record, &Problem::not_implemented()),
        })?;
        // The library accepts any text as the protocol.
        let upgrade = match protocol.map(|protocol| http1::Protocol::parse(protocol.as_ref())) {
            Some(None) => return Err(malformed(record, &invalid("the protocol is malformed"))),
            Some(protocol) => protocol,
            None => None,
        };
        // The library removes the scheme if the host is only in `Host`.
        if request
            .uri()
            .scheme()
            .is_some_and(|scheme| *scheme != Scheme::HTTPS)
        {
            return Err(malformed(record, &invalid("the scheme is not https")));
        }
        let raw = request
            .uri()
            .path_and_query()
            .map_or("/", |target| target.as_str());
        if raw.len() > self.worker.core.config.limits.url_bytes {
            return Err(malformed(record, &Problem::uri_too_long()));
        }
        let encoded = http1::encode_target(raw.as_bytes());
        let raw = encoded.as_deref().unwrap_or(raw.as_bytes());
        let target = RequestTarget::parse(method, raw)
            .map_err(|reason| malformed(record, &invalid(reason)))?;
        let authority = authority(request).map_err(|reason| malformed(record, &invalid(reason)))?;
        check_length(request).map_err(|reason| malformed(record, &invalid(reason)))?;
        let authority = Authority::parse(authority.as_bytes())
            .ok_or_else(|| malformed(record, &invalid("the authority is malformed")))?;
        let inbound = RequestInfo {
            method,
            target,
            authority,
            body: body_length(request),
            upgrade,
            connection: &self.connection,
            password,
        };
        route_and_authorize(&inbound, request.headers(), &self.worker.core, record)
    }
}

/// Records that a request is malformed, and returns the response.
fn malformed(
    request: &Request<RequestContent>,
    record: &mut AccessRecord,
    problem: &Problem,
) -> EdgeResponse {
    let accepts = request.headers().get_all(ACCEPT);
    let form = ErrorFormat::from_accept(accepts.into_iter().map(HeaderValue::as_bytes));
    record.set_rule("http", Some(problem.detail.clone()));
    record.set_outcome(Outcome::Refused);
    record.problem_answer(problem, form)
}

/// The authority of a request, from the pseudo field or `Host`. If both exist they must agree.
fn authority(request: &Request<RequestContent>) -> Result<&str, &'static str> {
    let pseudo = request.uri().authority().map(http::uri::Authority::as_str);
    let mut hosts = request.headers().get_all(http::header::HOST).iter();
    let host = match hosts.next() {
        Some(host) => Some(host.to_str().map_err(|_| "Host is malformed")?),
        None => None,
    };
    if hosts.next().is_some() {
        return Err("more than one Host");
    }
    match (pseudo, host) {
        (Some(pseudo), Some(host)) if !pseudo.eq_ignore_ascii_case(host) => {
            Err("the authority and Host differ")
        }
        (Some(authority), _) | (None, Some(authority)) => Ok(authority),
        (None, None) => Err("no authority"),
    }
}

/// Refuses lengths that the library accepts and a service could interpret differently: several
/// equal lengths, and an empty length, which counts as 0. An extended CONNECT has no length,
/// because the data that follows is not a body.
fn check_length(request: &Request<RequestContent>) -> Result<(), &'static str> {
    let lengths = request.headers().get_all(http::header::CONTENT_LENGTH);
    let mut lengths = lengths.iter().map(http::HeaderValue::as_bytes);
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(()),
        (Some(_), Some(_)) => Err("more than one Content-Length"),
        (Some(length), None) if length.is_empty() || !length.iter().all(u8::is_ascii_digit) => {
            Err("Content-Length is malformed")
        }
        (Some(_), None) if matches!(request.body(), RequestContent::Upgrade(_)) => {
            Err("an extended CONNECT has a Content-Length")
        }
        (Some(_), None) => Ok(()),
    }
}

fn body_length(request: &Request<RequestContent>) -> BodyLength {
    match request.body() {
        RequestContent::Body(body) if !body.is_end_stream() => {}
        RequestContent::Body(_) | RequestContent::Upgrade(_) => return BodyLength::Empty,
    }
    // The library compares the length with the data frames.
    let length = request.headers().get(http::header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    length.map_or(BodyLength::Chunked, BodyLength::Length)
}

/// A response of the edge itself.
pub(super) fn refusal(answer: EdgeResponse, is_head: bool) -> Response<DownstreamBody> {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let body = if is_head {
        Bytes::new()
    } else {
        Bytes::from(answer.body)
    };
    let mut response = Response::new(DownstreamBody::Full(Some(body)));
    *response.status_mut() = status;
    for (name, value) in answer.fields {
        response.headers_mut().append(name, value);
    }
    response
}
