//! Opens connections to services.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::ClientConfig;
use tokio::io::AsyncWrite as _;
use tokio::time::timeout;
use types::id::TunnelId;
use types::problem::Problem;
use types::tunnel::HttpVersion;

use super::http2::StreamPermit;
use super::io::UpstreamIo;
use super::pool::{Connection, Http1};
use super::tls::PLAINTEXT;
use super::{http2_handshake, tls};
use crate::agents::{Agent, OpenError, Purpose, StreamOrigin, TunnelStream};
use crate::core::Worker;
use crate::edge::http1::buffered::BufferedStream;
use crate::limits::ThrottledStream;
use crate::live::LiveTunnel;

/// Reason why a request has no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the service's TLS handshake failed: {0}")]
    Tls(io::Error),
    #[error("{}", PLAINTEXT)]
    Plaintext,
    #[error("the service does not support HTTP/2: {0}")]
    Http2(h2::Error),
    #[error("the service's handshake took too long")]
    Deadline,
}

/// Gets a connection for a request of a visitor: from the pool, or a new one if the
/// pool has none or `bypass_pool` is set. Cancel safe.
pub(crate) async fn connect(
    worker: &Worker,
    tunnel: &Arc<LiveTunnel<Agent>>,
    origin: StreamOrigin,
    bypass_pool: bool,
) -> Result<Connection, ConnectError> {
    if !bypass_pool && let Some(connection) = take_pooled(worker, tunnel) {
        return Ok(connection);
    }
    open(
        worker,
        tunnel,
        origin,
        tunnel.view.properties.http_version == Some(HttpVersion::H2c),
    )
    .await
}

/// An idle or shared connection of the worker's pool. A connection through another engine is used
/// only while the control connection exists that it was opened under.
fn take_pooled(worker: &Worker, tunnel: &LiveTunnel<Agent>) -> Option<Connection> {
    loop {
        let connection = worker.upstreams.lock().take(tunnel.view.id)?;
        let is_stale = tunnel.agent.is_peer()
            && matches!(&connection, Connection::Http1(http1) if !http1.io.stream().is_of(&tunnel.agent));
        if !is_stale {
            return Some(connection);
        }
    }
}

/// Seconds in `Retry-After` if the engine that has the agent is not connected, or does not hold the
/// tunnel any more: a change of the owner is known within a second.
pub(in crate::edge) const PEER_RETRY: u32 = 1;

/// The response to a visitor whose stream was refused. An engine of the cluster that does not hold
/// the tunnel any more is no fault of the service.
pub(in crate::edge) fn problem_of_refusal(
    tunnel: &LiveTunnel<Agent>,
    refusal: &wire::Error,
) -> Problem {
    if tunnel.agent.is_peer() && refusal.kind() == wire::ErrorCode::TunnelNotFound {
        Problem::tunnel_offline(PEER_RETRY)
    } else {
        Problem::upstream_unreachable()
    }
}

/// Keeps a connection after a complete exchange, if its tunnel is still online. The check is made
/// under the lock, so that [`Core::forget_upstreams`](crate::core::Core::forget_upstreams) finds
/// every connection that is kept. `announced`: the idle time after which the service closes it.
pub(crate) fn keep(worker: &Worker, tunnel: TunnelId, io: Http1, announced: Option<Duration>) {
    let mut upstreams = worker.upstreams.lock();
    let is_kept = io.io.stream().agent().keeps_connections(&tunnel);
    if is_kept.unwrap_or_else(|| worker.core.live.is_online(&tunnel)) {
        upstreams.keep(tunnel, io, announced);
    } else {
        // Closing takes a while, so it happens outside the lock.
        drop(upstreams);
        drop(io);
    }
}

/// Ends an exchange whose response was complete before its request. `poll_rest` sends the bytes of the
/// request that are in memory, because a stream does not end within a part of them. A service that
/// does not take them in time gets a reset.
pub(in crate::edge) async fn end_early(
    mut upstream: Http1,
    mut poll_rest: impl FnMut(&mut Context<'_>, &mut UpstreamIo) -> Poll<()>,
) {
    let rest = poll_fn(|cx| {
        ready!(poll_rest(cx, &mut upstream.io));
        // A session of TLS may have a part of a record. The service may accept no more of it.
        Pin::new(&mut upstream.io).poll_flush(cx).map(drop)
    });
    if timeout(END_TIMEOUT, rest).await.is_ok() {
        upstream.io.stream_mut().end_exchange();
    }
}

/// Time for the bytes of a request whose response is complete: a round trip on a bad line. The
/// agent discards them after the service has closed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens an HTTP/1.1 connection even if the tunnel prefers HTTP/2, for protocols that start with an
/// upgrade.
pub(crate) async fn connect_http1(
    worker: &Worker,
    tunnel: &Arc<LiveTunnel<Agent>>,
    origin: StreamOrigin,
) -> Result<Http1, ConnectError> {
    let stream = open_stream(worker, tunnel, origin, Purpose::Bytes).await?;
    let io = if tunnel.view.properties.upstream_tls == Some(true) {
        UpstreamIo::Tls(Box::new(
            tls::connect(stream, tunnel, &tls::HTTP1_ONLY).await?,
        ))
    } else {
        UpstreamIo::Plain(stream)
    };
    Ok(BufferedStream::new(io))
}

/// Opens a stream for a visitor whose bytes the edge does not parse. If the service uses TLS
/// (`upstream_tls`), the handshake offers only the `protocol` that the visitor uses.
pub(in crate::edge) async fn connect_raw(
    worker: &Worker,
    tunnel: &Arc<LiveTunnel<Agent>>,
    origin: StreamOrigin,
    protocol: Option<&[u8]>,
) -> Result<UpstreamIo, ConnectError> {
    let stream = open_stream(worker, tunnel, origin, Purpose::Bytes).await?;
    if tunnel.view.properties.upstream_tls != Some(true) {
        return Ok(UpstreamIo::Plain(stream));
    }
    let mut config = ClientConfig::clone(&tls::NO_PROTOCOL);
    config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
    let stream = tls::connect(stream, tunnel, &Arc::new(config)).await?;
    Ok(UpstreamIo::Tls(Box::new(stream)))
}

async fn open(
    worker: &Worker,
    tunnel: &Arc<LiveTunnel<Agent>>,
    origin: StreamOrigin,
    prior_knowledge: bool,
) -> Result<Connection, ConnectError> {
    let purpose = if prior_knowledge {
        // Many requests share an HTTP/2 connection.
        Purpose::Shared
    } else if tunnel.view.properties.upstream_tls == Some(true) {
        // The connection may become HTTP/2, and the requests and responses inside TLS are not
        // visible.
        Purpose::TlsExchanges
    } else {
        Purpose::Exchanges
    };
    let stream = open_stream(worker, tunnel, origin, purpose).await?;
    let (io, http2) = if tunnel.view.properties.upstream_tls == Some(true) {
        let stream = tls::connect(stream, tunnel, &tls::EITHER).await?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        (UpstreamIo::Tls(Box::new(stream)), http2)
    } else {
        (UpstreamIo::Plain(stream), prior_knowledge)
    };
    if !http2 {
        return Ok(Connection::Http1(BufferedStream::new(io)));
    }
    let http2 = http2_handshake::connect(worker, tunnel, io).await?;
    Ok(Connection::Http2(http2))
}

/// Opens a stream. If the agent has reached its limit, its own idle connections are closed to free
/// streams. Those of other agents are kept.
async fn open_stream(
    worker: &Worker,
    tunnel: &Arc<LiveTunnel<Agent>>,
    origin: StreamOrigin,
    purpose: Purpose,
) -> Result<ThrottledStream<TunnelStream>, OpenError> {
    let open = async || {
        let agent = &tunnel.agent;
        let opened = agent.open_stream(worker.index, tunnel, origin, purpose);
        opened
            .await
            .map(|(stream, _)| ThrottledStream::new(stream, tunnel))
    };
    let opened = open().await;
    if matches!(opened, Err(OpenError::Full)) {
        let tunnels = if tunnel.agent.is_peer() {
            vec![tunnel.view.id]
        } else {
            worker.core.live.tunnels_of(&tunnel.view.client_id)
        };
        let workers = worker.core.workers().iter();
        let idle: Vec<Http1> = workers
            .flat_map(|worker| worker.upstreams.lock().drain_http1(&tunnels))
            .collect();
        if !idle.is_empty() {
            drop(idle);
            return open().await;
        }
    }
    opened
}

/// Removes an HTTP/2 connection that did not respond in time. The next request opens a new one,
/// which may reach a healthy service.
pub(in crate::edge) fn discard_http2(
    worker: &Worker,
    tunnel: &LiveTunnel<Agent>,
    permit: &StreamPermit,
) {
    worker.upstreams.lock().remove_http2(tunnel.view.id, permit);
}
