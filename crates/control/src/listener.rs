//! The listener: HTTP/1.1 and HTTP/2 in clear, behind whatever ends TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use daemon::shutdown::Shutdown;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

/// Serves until the drain has come to its end.
///
/// With the drain, nobody is admitted any more and what runs is finished; with the hard end, what
/// is left is let go of.
pub(crate) async fn serve(listener: TcpListener, router: Router, shutdown: Shutdown) {
    let connections = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let (stream, peer) = tokio::select! {
            () = shutdown.drain().cancelled() => break,
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
        let connection = connections.watch(connection(stream, peer, router.clone()));
        tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke");
            }
            drop(place);
        });
    }
    drop(listener);
    tokio::select! {
        () = connections.shutdown() => {}
        () = shutdown.hard().cancelled() => tasks.abort_all(),
    }
}

/// What one process serves at once; a balancer holds a few for each of its peers.
const MAX_CONNECTIONS: usize = 10_000;
/// Long enough to let others end, short enough not to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What a client may take for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest head: a token has 8 KiB, and there are cookies beside it.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Requests that one HTTP/2 connection may have open.
const MAX_STREAMS: u32 = 128;

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
) -> impl hyper_util::server::graceful::GracefulConnection<
    Error = Box<dyn std::error::Error + Send + Sync>,
> + Send {
    let service = TowerToHyperService::new(router.map_request(
        move |mut request: http::Request<Incoming>| {
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
    builder
        .serve_connection(TokioIo::new(stream), service)
        .into_owned()
}
