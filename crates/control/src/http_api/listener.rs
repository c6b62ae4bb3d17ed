//! The listener: HTTP/1.1 and HTTP/2, over TLS if there is a certificate, else in clear behind a
//! proxy that terminates TLS.

mod activity;
mod connections;
mod proxied;
mod unread_body;
mod write_limit;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use acme::{Acceptor, Certificates};
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::{BoxError, Router};
use daemon::connections::{ConnectionLimitError, ConnectionPermit};
use daemon::shutdown::Shutdown;
use daemon::tls::TlsError;
use daemon::{head_size, problem};
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulConnection;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use types::problem::Problem;

use self::activity::{Activity, WatchedBody};
pub(crate) use self::connections::ConnectionLimit;
pub(crate) use self::proxied::ProxyPeers;
use self::write_limit::WriteLimit;
use crate::runtime::metrics;

/// The protocols of a listener below HTTP.
#[derive(Clone, Default)]
pub(crate) struct Layers {
    /// TLS; `None`: in clear.
    pub(crate) tls: Option<Acceptor>,
    /// Peers whose connections start with a header of the PROXY protocol; `None`: no connection
    /// does.
    pub(crate) proxies: Option<Arc<ProxyPeers>>,
}

/// Serves until the drain ends.
///
/// During the drain, responses close their connections. The notice period gives balancers time to
/// see that `/readyz` refuses. After it, no connection is accepted, and requests in flight are
/// finished, also the first ones of connections that were accepted before. The hard end closes the
/// remaining connections.
pub(crate) async fn serve(
    listener: TcpListener,
    layers: Layers,
    router: Router,
    limit: Arc<ConnectionLimit>,
    (shutdown, notice): (Shutdown, Duration),
) {
    let drain = shutdown.drain().clone();
    let router = router
        .layer(middleware::from_fn(unread_body::read_rest))
        .layer(middleware::from_fn_with_state(drain, close_when_draining));
    let mut admission_ends = pin!(admission_ends(&shutdown, notice));
    let goodbye = CancellationToken::new();
    let mut tasks = JoinSet::new();
    loop {
        let (stream, peer) = tokio::select! {
            () = &mut admission_ends => break,
            // Removes finished connections from the set.
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // The process is probably out of file descriptors, so an immediate retry would
                    // fail as well.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let source = match &layers.proxies {
            None => Some(peer.ip()),
            // The header names the source, which is counted then.
            Some(proxies) if proxies.contains(peer.ip()) => None,
            Some(_) => {
                tracing::debug!(%peer, "a connection is not from a proxy");
                continue;
            }
        };
        // A refused client sees a closed connection.
        let Some(permit) = admitted(&limit, source) else {
            continue;
        };
        let (goodbye, layers, router) = (goodbye.clone(), layers.clone(), router.clone());
        let limit = Arc::clone(&limit);
        tasks.spawn(async move {
            let counted = if layers.proxies.is_some() {
                let counted = read_proxied_source(stream, peer, &limit, &goodbye).await;
                // Until now the connection counted without its source.
                drop(permit);
                counted
            } else {
                Some((stream, peer, permit))
            };
            let Some((stream, peer, permit)) = counted else {
                return;
            };
            let stream = WriteLimit::new(stream, WRITE_STALL);
            let stream = match layers.tls {
                None => Either::Left(stream),
                Some(tls) => match handshake(&tls, stream, &goodbye).await {
                    Some(stream) => Either::Right(stream),
                    None => return,
                },
            };
            let (connection, activity) = connection(stream, peer, router);
            run(connection, &activity, &goodbye).await;
            drop(permit);
        });
    }
    drop(listener);
    goodbye.cancel();
    let finished = async { while tasks.join_next().await.is_some() {} };
    tokio::select! {
        () = finished => {}
        () = shutdown.hard().cancelled() => {}
    }
}

/// Counts a connection, if the limits allow it. The source is not counted without an address.
fn admitted(limit: &ConnectionLimit, source: Option<IpAddr>) -> Option<ConnectionPermit> {
    let acquired = match source {
        Some(source) => limit.acquire(source),
        None => limit.acquire_for_proxy(),
    };
    let exceeded = match acquired {
        Ok(permit) => return Some(permit),
        Err(exceeded) => exceeded,
    };
    let which = match exceeded {
        ConnectionLimitError::Total => "total",
        ConnectionLimitError::Source => "source",
    };
    metrics::connection_refused(which);
    tracing::debug!(?exceeded, "a connection was refused");
    None
}

/// The same connection after its header, with the source that the proxy names. `None` if there is
/// no valid header in time, the limit of the source is reached, or the drain does not wait longer.
async fn read_proxied_source(
    mut stream: TcpStream,
    peer: SocketAddr,
    limit: &ConnectionLimit,
    goodbye: &CancellationToken,
) -> Option<(TcpStream, SocketAddr, ConnectionPermit)> {
    let header = tokio::select! {
        header = proxied::read_header(&mut stream) => header,
        () = greeting_ends(goodbye) => return None,
    };
    let source = match header {
        // A health check of the proxy has no source.
        Ok(source) => source.unwrap_or(peer),
        Err(error) => {
            tracing::debug!(%peer, %error, "a connection has no valid PROXY header");
            return None;
        }
    };
    let permit = admitted(limit, Some(source.ip()))?;
    Some((stream, source, permit))
}

/// The TLS session. `None` if the handshake fails or takes too long, if it was the validation of an
/// authority, or if the drain does not wait longer.
async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &Acceptor,
    stream: S,
    goodbye: &CancellationToken,
) -> Option<TlsStream<S>> {
    let accepted = tokio::select! {
        accepted = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => accepted,
        () = greeting_ends(goodbye) => return None,
    };
    match accepted {
        Ok(Ok(stream)) => return stream,
        Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
        Err(_) => tracing::debug!("a handshake took too long"),
    }
    None
}

/// The end of the time that a drain leaves to a connection before its first request. Its client has
/// seen it accepted, and takes its end for a failure.
async fn greeting_ends(goodbye: &CancellationToken) {
    goodbye.cancelled().await;
    sleep(FIRST_REQUEST).await;
}

/// The time at which a drain ends a connection: after its first request.
async fn goodbye_applies(goodbye: &CancellationToken, activity: &Activity) {
    goodbye.cancelled().await;
    tokio::select! {
        () = activity.wait_for_first_request() => {}
        () = sleep(FIRST_REQUEST) => {}
    }
}

async fn admission_ends(shutdown: &Shutdown, notice: Duration) {
    shutdown.drain().cancelled().await;
    tokio::select! {
        () = tokio::time::sleep(notice) => {}
        () = shutdown.hard().cancelled() => {}
    }
}

/// Closes HTTP/1.1 connections together with a response, so that no client sends a request on a
/// connection that is being closed. HTTP/2 has a frame for that, which is sent after the notice
/// period.
async fn close_when_draining(
    State(drain): State<CancellationToken>,
    request: Request,
    next: Next,
) -> Response {
    let is_closable = request.version() < Version::HTTP_2;
    let mut response = next.run(request).await;
    if is_closable && drain.is_cancelled() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

/// Serves a connection until it ends, its client stops using it or reading from it, or the drain
/// ends it.
async fn run(
    connection: impl GracefulConnection<Error = BoxError>,
    activity: &Activity,
    goodbye: &CancellationToken,
) {
    let mut connection = pin!(connection);
    // Hyper's time limit for a request head is that of an idle connection, and starts only once the
    // protocol is known. A client that sends nothing, or half a greeting, would keep its slot
    // forever.
    let head_is_late = async {
        tokio::select! {
            () = activity.wait_without_request(HEAD_TIMEOUT) => {}
            () = activity.wait_for_slow_head(HEAD_TIMEOUT) => {}
        }
    };
    let mut head_is_late = pin!(head_is_late);
    let is_idle = tokio::select! {
        ended = connection.as_mut() => return log_end(ended),
        () = head_is_late.as_mut() => {
            return tracing::debug!("a connection sent no complete request in time");
        }
        () = activity.wait_until_stalled(READ_STALL) => {
            return tracing::debug!("the client did not read a response");
        }
        () = activity.wait_until_idle(IDLE_TIMEOUT) => true,
        () = goodbye_applies(goodbye, activity) => false,
    };
    // HTTP/2 names the last request that is processed, so that the client can repeat the others.
    connection.as_mut().graceful_shutdown();
    let goodbye_ends = async {
        if is_idle {
            sleep(CLOSE_TIMEOUT).await;
        } else {
            activity.wait_until_stalled(READ_STALL).await;
        }
    };
    tokio::select! {
        ended = connection => log_end(ended),
        // A drain waits for requests, but not longer for an incomplete one.
        () = head_is_late => tracing::debug!("a connection sent no complete request in time"),
        () = goodbye_ends => tracing::debug!("a connection did not close in time"),
    }
}

fn log_end(ended: Result<(), BoxError>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

/// TLS 1.2 and 1.3 with these certificates, and the answers to an authority.
///
/// # Errors
/// The library refuses the versions.
pub(crate) fn tls(certificates: &Certificates) -> Result<Acceptor, TlsError> {
    let mut config = ServerConfig::builder_with_provider(daemon::tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(TlsError::Configuration)?
        .with_no_client_auth()
        .with_cert_resolver(certificates.resolver());
    config.alpn_protocols = [&b"h2"[..], b"http/1.1"].map(<[u8]>::to_vec).to_vec();
    // The server's order of cipher suites is used, because it has the cheapest one first.
    config.ignore_client_order = true;
    Ok(Acceptor::new(Arc::new(config), certificates.challenges()))
}

/// Long enough for other connections to end, and short enough not to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time limit for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a request head. After the first request, it ends after one to two of these.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest request head: a token has 8 KiB, and there may be cookies as well.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Time that a drain leaves to each step of a connection before its first request: the handshake,
/// and the head of the request. Both may be in flight already.
const FIRST_REQUEST: Duration = Duration::from_secs(2);
/// Maximum number of concurrent requests of one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;
/// Time without a request after which a connection ends; HTTP/2 ends after one to two of these.
/// Enough time to read a page, or to approve a program that waits with its connection: a client of
/// HTTP/1.1 that sends a request while the server closes cannot know if it was processed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// Time for an idle client to close its connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(15);
/// Write time-out. A client that accepts no byte for this long is gone, or occupies a slot on
/// purpose. A network with total loss recovers or breaks before.
const WRITE_STALL: Duration = Duration::from_mins(1);
/// Like [`WRITE_STALL`], for a response that an HTTP/2 client does not read: it opens no window for
/// it.
const READ_STALL: Duration = Duration::from_mins(1);

/// Configures and creates the connection, with its activity.
fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    router: Router,
) -> (
    impl GracefulConnection<Error = BoxError> + Send,
    Arc<Activity>,
) {
    let activity = Arc::new(Activity::default());
    let requests = Arc::clone(&activity);
    let service = hyper::service::service_fn(move |mut request: http::Request<Incoming>| {
        let guard = requests.start_request(request.version());
        request.extensions_mut().insert(ConnectInfo(peer));
        let is_refused = request.version() == Version::HTTP_2
            && head_size::is_too_large(&request, MAX_HEAD_BYTES);
        let response = router.clone().oneshot(request.map(Body::new));
        async move {
            let response: Result<Response, Infallible> = if is_refused {
                Ok(problem::response(&Problem::header_fields_too_large(), None))
            } else {
                response.await
            };
            response.map(|response| response.map(|body| WatchedBody::new(body, guard)))
        }
    });
    let reads = Arc::clone(&activity);
    let stream = InspectReader::new(stream, move |bytes: &[u8]| {
        if !bytes.is_empty() {
            reads.record_read();
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(head_size::hard(MAX_HEAD_BYTES))
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(Some(HEAD_TIMEOUT));
    let connection = builder
        .serve_connection(TokioIo::new(stream), service)
        .into_owned();
    (connection, activity)
}

#[cfg(test)]
mod tests;
