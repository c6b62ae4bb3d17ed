//! Connections to services through their tunnels, kept open for later requests.

#[cfg(test)]
mod tests;
mod tls;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio_rustls::client::TlsStream;
use types::id::TunnelId;
use types::tunnel::HttpVersion;

use super::body::CountingBody;
use super::buffered::Buffered;
use crate::agents::{Agent, OpenError, Purpose, TunnelStream};
use crate::core::Worker;
use crate::limits::ThrottledStream;
use crate::live::LiveTunnel;

/// Time that a connection stays in the pool without a request. It is below the 60 to 75 s after
/// which common servers close idle connections, so that few requests meet a closed connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// Limit of idle connections to one service on one worker, enough to reuse those of a burst.
const MAX_IDLE_PER_TUNNEL: usize = 256;

/// Limit of idle connections to one service that have left their lane. A small request is more
/// expensive on them. The limit is enough for the large responses of a few visitors.
const MAX_MIGRATED_PER_TUNNEL: usize = 8;

/// Limit of idle connections on one worker. Each occupies one of its agent's streams and data
/// connections, so idle connections alone could exhaust an agent with many tunnels.
const MAX_IDLE_PER_WORKER: usize = 2048;

/// Time limit of a TLS or HTTP/2 handshake with a service.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// An HTTP/1.1 connection to a service.
pub(crate) type Http1 = Buffered<UpstreamIo>;

/// A slot for one request on a shared HTTP/2 connection.
pub(crate) struct Http2 {
    pub(crate) send: http2::SendRequest<CountingBody>,
    pub(crate) turn: StreamPermit,
}

/// Counts one request on its connection, until its response ends.
#[derive(Debug)]
pub(crate) struct StreamPermit(Arc<StreamLimit>);

/// The number of requests on a connection, and their limit.
#[derive(Debug)]
struct StreamLimit {
    active: AtomicUsize,
    most: AtomicUsize,
    /// True once the service has sent its limit, which precedes its first response.
    known: AtomicBool,
    answered: Notify,
}

/// Limit of requests that share a connection, even if the service allows more. Each of them gets
/// its part of [`CONNECTION_WINDOW`].
const MAX_CONCURRENT_STREAMS: usize = 32;

/// Window of one response: the bytes in flight on a connection with 50 MB/s and 20 ms.
const STREAM_WINDOW: u32 = 1024 * 1024;

/// Window of all [`MAX_CONCURRENT_STREAMS`] responses. Bytes occupy the window until their visitor
/// has read them, so with a smaller window a few slow visitors would block all other visitors.
const CONNECTION_WINDOW: u32 = 32 * STREAM_WINDOW;

/// A connection that is ready for a request.
pub(crate) enum Connection {
    Http1(Http1),
    Http2(Http2),
}

/// Reason why a request has no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the service's TLS handshake failed: {0}")]
    Tls(io::Error),
    #[error("the service does not speak HTTP/2: {0}")]
    Http2(hyper::Error),
    #[error("the service's handshake took too long")]
    Deadline,
}

/// Idle and shared connections of one worker.
#[derive(Debug)]
pub(crate) struct UpstreamPool<C = Http1> {
    by_tunnel: HashMap<TunnelId, IdleConnections<C>>,
    /// Number of idle HTTP/1.1 connections.
    idle: usize,
}

/// Idle and shared connections of one tunnel.
#[derive(Debug)]
pub(crate) struct IdleConnections<C = Http1> {
    /// The most recently used connection is last and is taken first.
    http1: Vec<(C, Instant)>,
    http2: Vec<SharedHttp2>,
}

/// An HTTP/1.1 connection that can be pooled.
pub(crate) trait Reusable {
    /// True if the connection can serve another request after it has been idle.
    fn is_reusable(&mut self) -> bool;

    /// Like [`TunnelStream::has_moved`].
    fn has_moved(&self) -> bool;
}

impl Reusable for Http1 {
    /// The check reads without the bandwidth limit, because a throttled read would show nothing
    /// about the connection.
    fn is_reusable(&mut self) -> bool {
        self.io.shaped().set_throttled(false);
        let is_quiet = self.is_quiet();
        self.io.shaped().set_throttled(true);
        is_quiet
    }

    fn has_moved(&self) -> bool {
        self.io.stream().has_moved()
    }
}

impl<C> Default for UpstreamPool<C> {
    fn default() -> Self {
        Self {
            by_tunnel: HashMap::new(),
            idle: 0,
        }
    }
}

impl<C> Default for IdleConnections<C> {
    fn default() -> Self {
        Self {
            http1: Vec::new(),
            http2: Vec::new(),
        }
    }
}

#[derive(Debug)]
struct SharedHttp2 {
    send: http2::SendRequest<CountingBody>,
    load: Arc<StreamLimit>,
    used: Instant,
}

impl SharedHttp2 {
    /// Acquires a slot, if one is free.
    fn take(&mut self) -> Option<Http2> {
        if self.send.is_closed() || !self.load.has_room() {
            return None;
        }
        self.used = Instant::now();
        let (send, turn) = (self.send.clone(), StreamPermit::take(&self.load));
        Some(Http2 { send, turn })
    }
}

impl StreamLimit {
    fn has_room(&self) -> bool {
        self.active.load(Ordering::Relaxed) < self.most.load(Ordering::Relaxed)
    }

    fn is_idle(&self) -> bool {
        self.active.load(Ordering::Relaxed) == 0
    }
}

impl StreamPermit {
    fn take(load: &Arc<StreamLimit>) -> Self {
        load.active.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(load))
    }

    /// The service has sent a response.
    pub(super) fn mark_answered(&self) {
        if !self.0.known.swap(true, Ordering::Relaxed) {
            self.0.answered.notify_one();
        }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl UpstreamPool {
    fn take(&mut self, tunnel: TunnelId) -> Option<Connection> {
        if let Some(http2) = self.take_http2(tunnel) {
            return Some(Connection::Http2(http2));
        }
        self.take_http1(tunnel).map(Connection::Http1)
    }
}

impl<C: Reusable> UpstreamPool<C> {
    fn take_http2(&mut self, tunnel: TunnelId) -> Option<Http2> {
        let connections = self.by_tunnel.get_mut(&tunnel)?;
        connections.http2.iter_mut().find_map(SharedHttp2::take)
    }

    fn take_http1(&mut self, tunnel: TunnelId) -> Option<C> {
        let connections = self.by_tunnel.get_mut(&tunnel)?;
        while let Some((mut io, _)) = connections.http1.pop() {
            self.idle = self.idle.saturating_sub(1);
            if io.is_reusable() {
                return Some(io);
            }
        }
        None
    }

    /// Removes the connections of a tunnel that ended, to be dropped outside the lock.
    pub(crate) fn forget(&mut self, tunnel: TunnelId) -> Option<IdleConnections<C>> {
        let connections = self.by_tunnel.remove(&tunnel)?;
        self.idle = self.idle.saturating_sub(connections.http1.len());
        Some(connections)
    }

    /// Keeps a connection after a complete exchange.
    fn keep(&mut self, tunnel: TunnelId, io: C) {
        if self.idle >= MAX_IDLE_PER_WORKER {
            // The connections in the pool were used as recently, or are closed soon.
            return;
        }
        let connections = self.by_tunnel.entry(tunnel).or_default();
        if connections.http1.len() >= MAX_IDLE_PER_TUNNEL {
            return;
        }
        let place = if io.has_moved() {
            let moved = |(connection, _): &&(C, Instant)| connection.has_moved();
            let moved = connections.http1.iter().take_while(moved).count();
            if moved >= MAX_MIGRATED_PER_TUNNEL {
                return;
            }
            // Migrated connections are in front, so that they are taken last.
            moved
        } else {
            connections.http1.len()
        };
        connections.http1.insert(place, (io, Instant::now()));
        self.idle += 1;
    }

    fn share(&mut self, tunnel: TunnelId, shared: SharedHttp2) {
        let connections = self.by_tunnel.entry(tunnel).or_default();
        // Simultaneous requests may each have opened a connection. The idle ones are not needed.
        connections.http2.retain(|other| !other.load.is_idle());
        connections.http2.push(shared);
    }

    /// Removes a shared connection that did not respond in time, so that it gets no further
    /// requests. Requests in flight on it have their own deadlines.
    fn forget_http2(&mut self, tunnel: TunnelId, turn: &StreamPermit) {
        if let Some(connections) = self.by_tunnel.get_mut(&tunnel) {
            let http2 = &mut connections.http2;
            http2.retain(|shared| !Arc::ptr_eq(&shared.load, &turn.0));
        }
    }

    /// Removes all HTTP/1.1 connections of these tunnels, to be dropped outside the lock.
    fn clear(&mut self, tunnels: &[TunnelId]) -> Vec<C> {
        let mut out = Vec::new();
        for tunnel in tunnels {
            if let Some(connections) = self.by_tunnel.get_mut(tunnel) {
                out.extend(connections.http1.drain(..).map(|(io, _)| io));
            }
        }
        self.idle = self.idle.saturating_sub(out.len());
        out
    }

    /// Removes connections that were unused for `idle` or for [`IDLE_TIMEOUT`], to be closed
    /// outside the lock.
    pub(crate) fn trim(&mut self, now: Instant, idle: Duration) -> Vec<C> {
        let idle = idle.min(IDLE_TIMEOUT);
        let mut out = Vec::new();
        self.by_tunnel.retain(|_, connections| {
            let aged = |used: &Instant| now.saturating_duration_since(*used) >= idle;
            out.extend(
                connections
                    .http1
                    .extract_if(.., |(_, used)| aged(used))
                    .map(|(io, _)| io),
            );
            connections.http2.retain(|shared| {
                let unused = shared.load.is_idle() && aged(&shared.used);
                !unused && !shared.send.is_closed()
            });
            !connections.http1.is_empty() || !connections.http2.is_empty()
        });
        self.idle = self.idle.saturating_sub(out.len());
        out
    }
}

/// Gets a connection for a request of a visitor at `source`: from the pool, or a new one if the
/// pool has none or `fresh` is set. Cancel safe.
pub(crate) async fn connect(
    worker: &Worker,
    tunnel: &Arc<LiveTunnel<Agent>>,
    source: IpAddr,
    fresh: bool,
) -> Result<Connection, ConnectError> {
    let id = tunnel.view.id;
    if !fresh && let Some(connection) = worker.upstreams.lock().take(id) {
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
/// every connection that is kept.
pub(crate) fn keep(worker: &Worker, tunnel: TunnelId, io: Http1) {
    let mut upstreams = worker.upstreams.lock();
    if worker.core.live.is_online(&tunnel) {
        upstreams.keep(tunnel, io);
    } else {
        // Closing takes a while, so it happens outside the lock.
        drop(upstreams);
        drop(io);
    }
}

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
    Ok(Buffered::new(io))
}

/// Opens a stream for a visitor whose bytes the edge does not parse. If the service uses TLS
/// (`upstream_tls`), the handshake offers only the `protocol` that the visitor uses.
pub(super) async fn connect_raw(
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
        // The connection may become HTTP/2, and inside TLS the turns of an exchange are not
        // visible.
        Purpose::Bytes
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
        return Ok(Connection::Http1(Buffered::new(io)));
    }
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(
            u32::try_from(worker.core.config.limits.header_bytes).unwrap_or(u32::MAX),
        );
    let handshake = builder.handshake(TokioIo::new(io));
    let (send, connection) = tokio::time::timeout(HANDSHAKE_DEADLINE, handshake)
        .await
        .map_err(|_| ConnectError::Deadline)?
        .map_err(ConnectError::Http2)?;
    let load = Arc::new(StreamLimit {
        active: AtomicUsize::new(0),
        most: AtomicUsize::new(MAX_CONCURRENT_STREAMS),
        known: AtomicBool::new(false),
        answered: Notify::new(),
    });
    let turn = StreamPermit::take(&load);
    // The task ends when the last sender is dropped. Every exchange gets and reports an error of
    // the connection itself.
    let limit = Arc::clone(&load);
    worker.runtime.spawn(async move {
        tokio::pin!(connection);
        loop {
            tokio::select! {
                _ended = &mut connection => return,
                () = limit.answered.notified() => {}
            }
            let most = connection.current_max_send_streams();
            limit
                .most
                .store(most.min(MAX_CONCURRENT_STREAMS), Ordering::Relaxed);
        }
    });
    let shared = SharedHttp2 {
        send: send.clone(),
        load,
        used: Instant::now(),
    };
    let mut upstreams = worker.upstreams.lock();
    // As in `keep`, the check is made under the lock.
    if worker.core.live.is_online(&tunnel.view.id) {
        upstreams.share(tunnel.view.id, shared);
    }
    drop(upstreams);
    Ok(Connection::Http2(Http2 { send, turn }))
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
            .flat_map(|worker| worker.upstreams.lock().clear(&tunnels))
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
pub(super) fn discard_http2(worker: &Worker, tunnel: &LiveTunnel<Agent>, turn: &StreamPermit) {
    worker.upstreams.lock().forget_http2(tunnel.view.id, turn);
}

/// A stream to a service, with or without TLS inside the tunnel.
#[derive(Debug)]
pub(crate) enum UpstreamIo {
    Plain(ThrottledStream<TunnelStream>),
    Tls(Box<TlsStream<ThrottledStream<TunnelStream>>>),
}

impl UpstreamIo {
    /// Reason why the agent refused the stream, if it sent one.
    pub(crate) fn refusal(&self) -> Option<wire::Error> {
        self.stream().refusal()
    }

    fn stream(&self) -> &TunnelStream {
        match self {
            Self::Plain(stream) => stream.get_ref(),
            Self::Tls(stream) => stream.get_ref().0.get_ref(),
        }
    }

    fn shaped(&mut self) -> &mut ThrottledStream<TunnelStream> {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_mut().0,
        }
    }
}

impl AsyncRead for UpstreamIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for UpstreamIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}
