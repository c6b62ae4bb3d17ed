//! The listener: HTTP/1.1 and HTTP/2, over TLS where there is a certificate, else in clear behind
//! whatever ends TLS.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::{BoxError, Router};
use daemon::shutdown::Shutdown;
use daemon::tls::{CertFiles, ReloadingCert, TlsError};
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Serves until the drain has come to its end.
///
/// From the drain on, answers close their connections. When the notice is over, so that whoever sends
/// people here has had time to see that `/readyz` refuses, nobody is admitted any more and what runs
/// is finished; with the hard end, what is left is let go of.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    (shutdown, notice): (Shutdown, Duration),
) {
    let drain = shutdown.drain().clone();
    let router = router.layer(middleware::from_fn_with_state(drain, close_when_draining));
    let mut admission_ends = pin!(admission_ends(&shutdown, notice));
    let connections = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let (stream, peer) = tokio::select! {
            () = &mut admission_ends => break,
            // Ended connections are forgotten as they end.
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Out of descriptors, most likely: the next try would fail at once.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        // Whoever comes when all places are taken is told by a closed connection.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!("too many connections");
            continue;
        };
        let (watcher, tls, router) = (connections.watcher(), tls.clone(), router.clone());
        tasks.spawn(async move {
            let stream = match tls {
                None => Either::Left(stream),
                Some(tls) => match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                    Ok(Ok(stream)) => Either::Right(stream),
                    Ok(Err(error)) => return tracing::debug!(%error, "a handshake failed"),
                    Err(_) => return tracing::debug!("a handshake took too long"),
                },
            };
            let (connection, begun) = connection(stream, peer, router);
            within_patience(watcher.watch(connection), &begun).await;
            drop(place);
        });
    }
    drop(listener);
    tokio::select! {
        () = connections.shutdown() => {}
        () = shutdown.hard().cancelled() => tasks.abort_all(),
    }
}

async fn admission_ends(shutdown: &Shutdown, notice: Duration) {
    shutdown.drain().cancelled().await;
    tokio::select! {
        () = tokio::time::sleep(notice) => {}
        () = shutdown.hard().cancelled() => {}
    }
}

/// Sends clients of HTTP/1.1 elsewhere with the answer, so that no request of theirs meets a
/// connection that is just being closed. HTTP/2 has a frame for that, which comes with the end of the
/// notice.
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

/// Serves a connection, but lets go of one that brings no request: the time for a head begins only
/// once it is known which protocol is spoken, and who says nothing, or half a greeting, would keep
/// a place for good.
async fn within_patience(
    connection: impl Future<Output = Result<(), BoxError>>,
    begun: &AtomicBool,
) {
    let mut connection = pin!(connection);
    let ended = match timeout(HEAD_TIMEOUT, &mut connection).await {
        Ok(ended) => ended,
        Err(_) if begun.load(Ordering::Relaxed) => connection.await,
        Err(_) => return tracing::debug!("a connection brought no request"),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

/// TLS with what the files hold, 1.2 and 1.3. They are looked at again as they change.
///
/// # Errors
/// There is no usable pair at the start.
pub(crate) fn tls(files: &CertFiles) -> Result<TlsAcceptor, TlsError> {
    let provider = daemon::tls::provider();
    let certificate = ReloadingCert::load(files.clone(), Arc::clone(&provider))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(TlsError::Configuration)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = [&b"h2"[..], b"http/1.1"].map(<[u8]>::to_vec).to_vec();
    // Our order of cipher suites counts: it has the one that costs least first.
    config.ignore_client_order = true;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// What one process serves at once; a balancer holds a few for each of its peers.
const MAX_CONNECTIONS: usize = 10_000;
/// Long enough to let others end, short enough not to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What a client may take for a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// What a client may take for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest head: a token has 8 KiB, and there are cookies beside it.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Requests that one HTTP/2 connection may have open.
const MAX_STREAMS: u32 = 128;

/// The connection, and whether a request has come over it.
fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    router: Router,
) -> (
    impl GracefulConnection<Error = BoxError> + Send,
    Arc<AtomicBool>,
) {
    let begun = Arc::new(AtomicBool::new(false));
    let mark = Arc::clone(&begun);
    let service = TowerToHyperService::new(router.map_request(
        move |mut request: http::Request<Incoming>| {
            mark.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(ConnectInfo(peer));
            request.map(axum::body::Body::new)
        },
    ));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(Some(HEAD_TIMEOUT));
    let connection = builder
        .serve_connection(TokioIo::new(stream), service)
        .into_owned();
    (connection, begun)
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// What a client reads that says this first, until it is let go of.
    async fn told(says: &str) -> String {
        let (mut client, server) = duplex(64 * 1024);
        let router = Router::new().route("/", get(async || "hello"));
        let (connection, begun) = connection(server, ([192, 0, 2, 1], 1).into(), router);
        let serving = tokio::spawn(async move { within_patience(connection, &begun).await });
        client.write_all(says.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        serving.await.unwrap();
        String::from_utf8_lossy(&read).into_owned()
    }

    /// The clock runs by itself where everybody waits: without a bound this would wait for good.
    #[tokio::test(start_paused = true)]
    async fn who_brings_no_request_is_let_go_of() {
        for says in ["", "P", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nHost"] {
            assert_eq!(told(says).await, "", "{says}");
        }
        let answer = told("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(answer.ends_with("hello"), "{answer}");
    }
}
