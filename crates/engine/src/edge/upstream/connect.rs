//! Opens connections to services.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::ClientConfig;
use tokio::io::AsyncWrite as _;
use tokio::time::timeout;
use types::id::TunnelId;
use types::tunnel::HttpVersion;

use super::http2::StreamPermit;
use super::io::UpstreamIo;
use super::pool::{Connection, Http1};
use super::tls::PLAINTEXT;
use super::{http2_handshake, tls};
use crate::agents::{Agent, OpenError, Purpose, TunnelStream};
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

/// Gets a connection for a request of a visitor at `source`: from the pool, or a new one if the
/// pool has none or `bypass_pool` is set. Cancel safe.
pub(crate) async fn connect(
    worker: &Worker,
    tunnel: &Arc<LiveTunnel<Agent>>,
    source: IpAddr,
    bypass_pool: bool,
) -> Result<Connection, ConnectError> {
    let id = tunnel.view.id;
    if !bypass_pool && let Some(connection) = worker.upstreams.lock().take(id) {
        return Ok(connection);
    }
    open(
        worker,
        tunnel,
        source,
        tunnel.view.properties.http_version == Some(HttpVersion::H2c),
    )
    .await
}

/// Keeps a connection after a complete exchange, if its tunnel is still online. The check is made
/// under the lock, so that [`Core::forget_upstreams`](crate::core::Core::forget_upstreams) finds
/// every connection that is kept. `announced`: the idle time after which the service closes it.
pub(crate) fn keep(worker: &Worker, tunnel: TunnelId, io: Http1, announced: Option<Duration>) {
    let mut upstreams = worker.upstreams.lock();
    if worker.core.live.is_online(&tunnel) {
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
    source: IpAddr,
) -> Result<Http1, ConnectError> {
    let stream = open_stream(worker, tunnel, source, Purpose::Bytes).await?;
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
    source: IpAddr,
    protocol: Option<&[u8]>,
) -> Result<UpstreamIo, ConnectError> {
    let stream = open_stream(worker, tunnel, source, Purpose::Bytes).await?;
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
    source: IpAddr,
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
    let stream = open_stream(worker, tunnel, source, purpose).await?;
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
    let http2 = http2_handshake::connect(worker, tunnel.view.id, io).await?;
    Ok(Connection::Http2(http2))
}

/// Opens a stream. If the agent has reached its limit, its own idle connections are closed to free
/// streams. Those of other agents are kept.
async fn open_stream(
    worker: &Worker,
    tunnel: &Arc<LiveTunnel<Agent>>,
    source: IpAddr,
    purpose: Purpose,
) -> Result<ThrottledStream<TunnelStream>, OpenError> {
    let open = async || {
        let agent = &tunnel.agent;
        let opened = agent.open_stream(worker.index, tunnel.view.id, source, purpose);
        opened
            .await
            .map(|(stream, _)| ThrottledStream::new(stream, tunnel))
    };
    let opened = open().await;
    if matches!(opened, Err(OpenError::Full)) {
        let tunnels = worker.core.live.tunnels_of(&tunnel.view.client_id);
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
