//! HTTP/2 visitors.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http1::{Authority, BodyLength, Target};
use hyper::body::{Body as _, Incoming};
use hyper::ext::Protocol;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use transport::TlsStream;
use types::problem::Problem;

use super::answer::Answer;
use super::plan::{Inbound, plan};
use super::record::{Outcome, Record};
use super::relay::{self, DownBody};
use crate::core::Worker;

/// Requests of one visitor at the same time: what browsers use is below it.
const STREAMS: u32 = 256;

/// Streams that a visitor reset and that still wait to be noticed. A visitor that resets faster
/// than this attacks (rapid reset); its connection ends.
const RESETS: usize = 32;

/// How often a silent connection is asked whether it is still there, and how long it may take to
/// answer.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(15);

/// Bytes of a response that wait for one stream of a visitor that reads slowly.
const SEND_BUFFER: usize = 256 * 1024;

/// Bytes of a request that may be under way: enough for 50 MB/s over 20 ms.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// Serves one connection to its end. `server_name` is that of the handshake, in lower case.
pub(crate) async fn serve(stream: TlsStream, server_name: String, worker: Arc<Worker>) {
    let visitor = Arc::new(Visitor {
        source: stream.get_ref().0.peer().ip(),
        server_name,
        worker: Arc::clone(&worker),
    });
    let header_bytes = u32::try_from(worker.core.config.limits.header_bytes).unwrap_or(u32::MAX);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .enable_connect_protocol()
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(RESETS)
        .max_header_list_size(header_bytes)
        .max_send_buf_size(SEND_BUFFER)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG);
    let service = service_fn(move |request| {
        let visitor = Arc::clone(&visitor);
        async move { Ok::<_, Infallible>(visitor.answer(request).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // Whatever ended it, the visitor knows or is gone.
        ended = &mut connection => drop(ended),
        () = worker.drain.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await.ok();
        }
    }
}

/// A visitor's connection.
#[derive(Debug)]
struct Visitor {
    source: IpAddr,
    server_name: String,
    worker: Arc<Worker>,
}

impl Visitor {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<DownBody> {
        let mut record = Record::begin(&self.worker, "http", self.source);
        let is_head = request.method() == Method::HEAD;
        let protocol = request
            .extensions()
            .get::<Protocol>()
            .map(|name| name.as_str().to_owned());
        let verdict = self.judge(&request, protocol.as_deref(), &mut record);
        match verdict {
            Ok(forward) if protocol.is_some() => {
                let upgrade = hyper::upgrade::on(&mut request);
                relay::upgrade(&self.worker, self.source, forward, upgrade, record).await
            }
            Ok(forward) => {
                let length = body_length(&request);
                let body = request.into_body();
                relay::run(&self.worker, self.source, forward, body, length, record).await
            }
            Err(answer) => refusal(answer, is_head),
        }
    }

    /// Reads the request as strictly as one of HTTP/1.1, and decides about it.
    fn judge(
        &self,
        request: &Request<Incoming>,
        protocol: Option<&str>,
        record: &mut Record,
    ) -> Result<super::plan::Forward, Answer> {
        let malformed = |record: &mut Record, problem: &Problem| {
            record.decided("http", Some(problem.detail.clone()));
            record.ended(Outcome::Refused);
            record.status(problem.status);
            Answer::problem(problem, false)
        };
        let invalid = |reason: &'static str| Problem::invalid_request(reason);
        // Extended CONNECT is how HTTP/2 says what an upgrade says in HTTP/1.1 (RFC 8441).
        let method = match (request.method(), protocol) {
            (&Method::CONNECT, Some(_)) => "GET",
            (&Method::CONNECT, None) => {
                return Err(malformed(record, &Problem::not_implemented()));
            }
            (method, _) => method.as_str(),
        };
        let method = http1::Method::of(method);
        let raw = request
            .uri()
            .path_and_query()
            .map_or("/", |target| target.as_str());
        if raw.len() > self.worker.core.config.limits.url_bytes {
            return Err(malformed(record, &Problem::uri_too_long()));
        }
        let target = Target::parse(method, raw.as_bytes())
            .map_err(|reason| malformed(record, &invalid(reason)))?;
        let authority = authority(request).map_err(|reason| malformed(record, &invalid(reason)))?;
        let parsed = Authority::parse(authority.as_bytes())
            .ok_or_else(|| malformed(record, &invalid("the authority is malformed")))?;
        let inbound = Inbound {
            method,
            target,
            host: parsed.host,
            authority,
            body: if protocol.is_some() {
                BodyLength::Empty
            } else {
                body_length(request)
            },
            upgrade: protocol,
            server_name: &self.server_name,
            source: self.source,
        };
        plan(&inbound, request.headers(), &self.worker.core, record)
    }
}

/// The authority of a request: of the pseudo field, of `Host`, or of both where they agree.
fn authority(request: &Request<Incoming>) -> Result<&str, &'static str> {
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

fn body_length(request: &Request<Incoming>) -> BodyLength {
    if request.body().is_end_stream() {
        return BodyLength::Empty;
    }
    // The library has compared it with the data frames, or will.
    let length = request.headers().get(http::header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    length.map_or(BodyLength::Chunked, BodyLength::Length)
}

/// An answer of our own.
pub(super) fn refusal(answer: Answer, is_head: bool) -> Response<DownBody> {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let body = if is_head {
        Bytes::new()
    } else {
        Bytes::from(answer.body)
    };
    let mut response = Response::new(DownBody::Full(Some(body)));
    *response.status_mut() = status;
    for (name, value) in answer.fields {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
