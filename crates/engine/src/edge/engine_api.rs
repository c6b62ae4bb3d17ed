//! HTTP connections to the base host: the Engine API.

pub(super) mod event_stream;
pub(super) mod strict_requests;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use daemon::connections::source_network;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::ext::Protocol;
use hyper::server::conn;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::timeout;
use tower::ServiceExt as _;
use transport::TlsStream;
use types::problem::Problem;

use self::event_stream::AfterStream;
use self::strict_requests::StrictRequests;
use crate::api::SourceAddress;
use crate::core::Worker;
use crate::edge::http1::buffered::BufferedStream;
use crate::edge::http2::in_flight::{InFlightGuard, InFlightRequests};
use crate::edge::http2::slow_reader_timeout;
use crate::edge::http2::slow_reader_timeout::StreamExecutor;
use daemon::head_size;

/// Time limit of a request head.
const HEAD_DEADLINE: Duration = Duration::from_secs(15);
/// Limit of concurrent requests on one connection.
const STREAMS: u32 = 100;
/// Interval of keep-alive pings on a silent connection, and time limit of the response.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(15);
/// Time limit for the remaining responses of a client during a drain. Lists are short, and event
/// streams end when the drain starts. A client that does not read must not delay the drain for all
/// other clients.
const DRAIN_DEADLINE: Duration = Duration::from_secs(5);

/// Seconds in `Retry-After` while the engine has no data from its platform.
const SNAPSHOT_RETRY: u32 = 5;

/// Serves one connection until it closes.
pub(crate) async fn serve(stream: TlsStream, server_name: Option<Arc<str>>, worker: Arc<Worker>) {
    // A client that reads nothing for this time is considered gone.
    let stall = worker.core.config.timeouts.visitor_stall;
    stream.get_ref().0.limit_stall(Some(stall));
    let source = SourceAddress(source_network(stream.get_ref().0.peer().ip()));
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let mut io = BufferedStream::new(stream);
    if !http2 {
        let answering = |request| answer(request, source, server_name.as_deref(), &worker);
        let deadlines = (HEAD_DEADLINE, DRAIN_DEADLINE);
        let serving = event_stream::serve(&mut io, &worker, deadlines, answering);
        // Each future is boxed and dropped after use, so that event streams do not reserve memory
        // for the library.
        match Box::pin(serving).await {
            AfterStream::Requests => {}
            AfterStream::Close => return io.close().await,
            AfterStream::Closed => return,
        }
    }
    Box::pin(serve_requests(io, http2, (source, server_name), worker)).await;
}

#[expect(
    clippy::too_many_lines,
    reason = "one decision with its cases in order"
)]
async fn serve_requests(
    stream: BufferedStream<TlsStream>,
    http2: bool,
    (source, server_name): (SourceAddress, Option<Arc<str>>),
    worker: Arc<Worker>,
) {
    let header_bytes = worker.core.config.limits.header_bytes;
    let service_worker = Arc::clone(&worker);
    let activity = Arc::new(InFlightRequests::default());
    let in_flight = Arc::clone(&activity);
    let upgraded = Arc::new(OnceLock::new());
    let idle = worker.core.config.timeouts.http_idle;
    let stall = worker.core.config.timeouts.visitor_stall;
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (worker, server_name) = (Arc::clone(&service_worker), server_name.clone());
        let guard = InFlightRequests::track(&in_flight);
        let upgrades = request.extensions().get::<Protocol>().is_some();
        let upgraded = Arc::clone(&upgraded);
        async move {
            let answer = answer(
                request.map(Body::new),
                source,
                server_name.as_deref(),
                &worker,
            );
            let answer = answer.await?;
            if upgrades && answer.status().is_success() {
                // A WebSocket has its own time-outs. It keeps the connection from being idle.
                upgraded.set(guard).ok();
                return Ok::<_, Infallible>(answer);
            }
            Ok(answer.map(|body| {
                Body::new(TrackedBody {
                    body,
                    _guard: guard,
                })
            }))
        }
    });
    let drain = worker.drain.cancelled();
    // An error needs no handling: the client has been informed, or is gone.
    if http2 {
        let mut builder = conn::http2::Builder::new(StreamExecutor::new(stall));
        builder
            .timer(TokioTimer::new())
            .enable_connect_protocol()
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(head_size::hard(header_bytes))
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            ended = &mut connection => drop(ended),
            () = drain => {
                connection.as_mut().graceful_shutdown();
                timeout(DRAIN_DEADLINE, connection).await.ok();
            }
            // A connection without a first request is closed, as for HTTP/1.1.
            () = activity.no_request_within(HEAD_DEADLINE) => {}
            () = activity.idle_for(idle) => {
                connection.as_mut().graceful_shutdown();
                // The time-out closes a connection whose client does not finish the shutdown.
                timeout(PONG, connection).await.ok();
            }
        }
    } else {
        let mut builder = conn::http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_DEADLINE)
            .max_buf_size(header_bytes.max(16 * 1024));
        let limits = http1::Limits {
            head_bytes: header_bytes,
            target_bytes: worker.core.config.limits.url_bytes,
            ..http1::Limits::default()
        };
        let clock = Arc::clone(&worker.core.clock);
        let io = TokioIo::new(StrictRequests::new(stream, limits, move || clock.now()));
        let connection = builder.serve_connection(io, service).with_upgrades();
        tokio::pin!(connection);
        tokio::select! {
            ended = &mut connection => drop(ended),
            () = drain => {
                connection.as_mut().graceful_shutdown();
                timeout(DRAIN_DEADLINE, connection).await.ok();
            }
        }
    }
}

/// A body that keeps its connection from being idle until it ends.
struct TrackedBody {
    body: Body,
    _guard: InFlightGuard,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        slow_reader_timeout::record_body_poll(&polled);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

async fn answer(
    mut request: Request,
    source: SourceAddress,
    server_name: Option<&str>,
    worker: &Worker,
) -> Result<Response, Infallible> {
    let refused = match host(&request).map(str::to_ascii_lowercase) {
        _ if head_size::is_too_large(&request, worker.core.config.limits.header_bytes) => {
            Problem::header_fields_too_large()
        }
        Err(reason) => Problem::invalid_request(reason),
        // A connection serves only the host of its handshake, because another project's host may be
        // at another engine (RFC 9110, 7.4).
        Ok(host) if server_name.is_some_and(|name| name != host) => Problem::misdirected_request(),
        // EN-1a: `/api/` of another host belongs to that host.
        Ok(host) => match worker.core.project_at(&host) {
            Some(project) => {
                request.extensions_mut().insert(project);
                request.extensions_mut().insert(source);
                return worker.core.api.clone().oneshot(request).await;
            }
            None if !worker.core.has_platform_snapshot() => {
                Problem::unavailable().with_retry_after(SNAPSHOT_RETRY)
            }
            None => Problem::misdirected_request(),
        },
    };
    Ok(daemon::problem::Refusal::from(refused).into_response())
}

/// The host of a request, from the authority and `Host`, parsed as strictly as on a tunnel's host.
fn host(request: &Request) -> Result<&str, &'static str> {
    let fields = request.headers().get_all(http::header::HOST).iter();
    let mut fields = fields.map(http::HeaderValue::as_bytes);
    let pseudo = request.uri().authority();
    let pseudo = pseudo.map(|authority| authority.as_str().as_bytes());
    let (field, repeated) = (fields.next(), fields.next().is_some());
    let authority = match (pseudo, field) {
        _ if repeated => return Err("more than one Host"),
        (Some(pseudo), Some(field)) if !pseudo.eq_ignore_ascii_case(field) => {
            return Err("the authority and Host differ");
        }
        (Some(authority), _) | (None, Some(authority)) => authority,
        (None, None) => return Err("no Host"),
    };
    let authority = http1::Authority::parse(authority).ok_or("Host is malformed")?;
    Ok(authority.host())
}
