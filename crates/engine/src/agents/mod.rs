//! Agents: their control channels, their data connections, and the streams through them.
//!
//! [`session`] is the actor of one control channel. [`Agent`] is the handle that the rest of the
//! engine opens streams with. A stream uses a standing connection if the agent supports them
//! ([`pool`]), and small ones share connections if it supports that ([`lanes`]). Otherwise the
//! agent opens a connection for each request of the engine. Another engine of the cluster that has
//! the agent is in the place of one ([`peer`]).

mod dial;
mod hello;
mod lanes;
mod origin;
mod peer;
mod pending_streams;
mod pool;
mod pool_stats;
mod session;
mod stream;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use credentials::TokenRefusal;
use metrics::Histogram;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transport::lane::Budget;
use transport::permit::{Counter, Permit};
use types::id::{ClientId, StreamId, TunnelId};
use wire::lane::{MAX_LANES, UP_LIMIT};
use wire::message::{PoolReq, ProxyConnReq};
use wire::pool::StreamOpen;
use wire::{Kind, Message};

pub(crate) use self::hello::{refuse_until_ready, serve};
use self::lanes::Lanes;
pub(crate) use self::origin::StreamOrigin;
use self::peer::PeerState;
pub(crate) use self::peer::{PeerDemand, PeerParts};
use self::pending_streams::PendingStream;
pub(crate) use self::pending_streams::PendingStreams;
use self::pool::{Checkout, Pool};
pub(crate) use self::pool_stats::PoolStats;
use self::stream::PooledStream;
pub(crate) use self::stream::{SharedRequests, TunnelStream};
use crate::access::TokenError;
use crate::live::{LiveTunnel, LoadMetric};
use crate::random::random_bytes;

/// The response to a token that is not accepted. The caller does not receive the reason, with one
/// exception: a token that one of our keys signed and that is not valid yet. In that case the clock
/// of this engine or of the signer is wrong. The agent cannot fix that, so it tries again.
fn token_refused(refused: TokenError) -> wire::Error {
    match refused {
        TokenError::Refused(TokenRefusal::NotYetValid) => wire::Error::service_unavailable(
            "the token is not valid yet: the clock of the engine or of the token's issuer is wrong",
        ),
        TokenError::Refused(_)
        | TokenError::Revoked
        | TokenError::NoCredential(_)
        | TokenError::UnknownCredential(_) => {
            wire::Error::unauthorized("the token is not valid here")
        }
    }
}

/// Messages that may wait for one agent's control channel. If there are more, the agent does not
/// read, and a stream is refused instead of queued.
const OUTBOX: usize = 1024;

/// A connected agent, as tunnels and visitors use it.
pub(crate) struct Agent {
    /// Streams that were requested from agents.
    pending: Arc<PendingStreams>,
    /// Tasks that serve agents.
    tasks: TaskTracker,
    /// Runtimes of the workers, by index.
    runtimes: Box<[Handle]>,
    client_id: ClientId,
    outbox: mpsc::Sender<ControlCommand>,
    /// One for each worker; empty for an agent without the extension.
    pools: Box<[Pool]>,
    /// One for each worker; empty for an agent without the extension.
    lanes: Box<[Lanes]>,
    /// The agent reports which bytes of HTTP exchanges reached the service.
    reports_delivery: bool,
    /// Another engine of the cluster: number of streams that were forwarded to it.
    forwards: Option<metrics::Counter>,
    pool_secret: String,
    /// Limit of concurrent connection requests to the agent; further ones wait. The published
    /// clients abort their control channel when they receive more requests than they can queue.
    request_permits: Semaphore,
    /// Number of connections that the agent has opened on request.
    opened_on_request: AtomicU64,
    streams: Counter,
    max_streams: usize,
    /// Time for the agent to open a stream.
    open_deadline: Duration,
    open_seconds: Histogram,
    /// Cancelled when the control channel has ended: nothing new is admitted. Accepted streams
    /// continue.
    ended: CancellationToken,
    /// Its credential was revoked: its streams end as well.
    revoked: AtomicBool,
    /// Another engine that is stopping.
    draining: AtomicBool,
    /// Another engine: what it has reported.
    peer: Option<Box<PeerState>>,
}

/// The properties of an agent that are known when it connects.
struct AgentInfo {
    pending: Arc<PendingStreams>,
    tasks: TaskTracker,
    runtimes: Box<[Handle]>,
    client_id: ClientId,
    /// Numbers of workers with a pool and with lanes. At most [`MAX_LANES`] workers get lanes.
    pools: usize,
    lanes: usize,
    reports_delivery: bool,
    forwards: Option<metrics::Counter>,
    max_streams: usize,
    /// Time for the agent to open a stream.
    open_deadline: Duration,
    open_seconds: Histogram,
}

/// The use of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Sequential HTTP exchanges, which are mostly small: on a lane until one of them is large.
    Exchanges,
    /// HTTP exchanges inside TLS: on a lane as [`Self::Bytes`], because they cannot be
    /// distinguished.
    TlsExchanges,
    /// Bytes of an unknown protocol: on a lane as well, which they leave earlier.
    Bytes,
    /// Concurrent exchanges of many visitors: never on a lane.
    Shared,
}

/// A command for the control channel's actor.
#[derive(Debug)]
pub(crate) enum ControlCommand {
    /// Send this.
    Send(Box<Message>),
    /// Another channel of the same identity has taken over this tunnel.
    TakenOver(TunnelId),
    /// A caller of the Engine API closed this tunnel.
    Closed(TunnelId),
}

/// Reasons why a stream cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The agent has gone, or does not read its control channel.
    #[error("the agent is not connected")]
    AgentDisconnected,
    /// The engine that has the agent is not connected.
    #[error("the engine with the agent is not connected")]
    PeerDisconnected,
    /// The agent did not open a stream in time.
    #[error("the agent did not respond in time")]
    Deadline,
    /// The agent refused, with its reason.
    #[error("the agent refused: {}", .0.text())]
    Refused(wire::Error),
    /// The agent has reached its limit of streams.
    #[error("the agent has too many streams")]
    Full,
}

impl OpenError {
    /// Name in metrics.
    fn as_str(&self) -> &'static str {
        match self {
            Self::AgentDisconnected => "gone",
            Self::PeerDisconnected => "peer_gone",
            Self::Deadline => "deadline",
            Self::Refused(_) => "refused",
            Self::Full => "full",
        }
    }
}

/// The answer to a dialler, or to another engine that forwards a visitor.
impl From<OpenError> for wire::Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Refused(refusal) => refusal,
            OpenError::Full => Self::capacity_exhausted(error.to_string()),
            OpenError::AgentDisconnected | OpenError::PeerDisconnected | OpenError::Deadline => {
                Self::service_unavailable(error.to_string())
            }
        }
    }
}

impl Agent {
    /// An agent without streams, and the receiver of its control commands.
    fn new(of: AgentInfo) -> (Arc<Self>, mpsc::Receiver<ControlCommand>) {
        let (outbox, orders) = mpsc::channel(OUTBOX);
        let agent = Self {
            pending: of.pending,
            tasks: of.tasks,
            runtimes: of.runtimes,
            client_id: of.client_id,
            outbox,
            pools: (0..of.pools).map(|_| Pool::default()).collect(),
            // A worker without lanes has a connection for each stream.
            lanes: (0..of.lanes.min(MAX_LANES))
                .map(|_| Lanes::default())
                .collect(),
            reports_delivery: of.reports_delivery,
            peer: of.forwards.is_some().then(Box::default),
            forwards: of.forwards,
            pool_secret: hex::encode(random_bytes::<32>()),
            request_permits: Semaphore::new(ProxyConnReq::MAX_PENDING),
            opened_on_request: AtomicU64::new(0),
            streams: Counter::default(),
            max_streams: of.max_streams,
            open_deadline: of.open_deadline,
            open_seconds: of.open_seconds,
            ended: CancellationToken::new(),
            revoked: AtomicBool::new(false),
            draining: AtomicBool::new(false),
        };
        (Arc::new(agent), orders)
    }

    /// Opens a stream to `tunnel` for a visitor, used on `worker`.
    ///
    /// Cancel safe: a stream that arrives after the cancellation is closed.
    pub(crate) async fn open_stream(
        self: &Arc<Self>,
        worker: usize,
        tunnel: &LiveTunnel<Self>,
        origin: StreamOrigin,
        purpose: Purpose,
    ) -> Result<(TunnelStream, StreamId), OpenError> {
        let started = Instant::now();
        let opened = self.open(worker, tunnel, origin, purpose).await;
        match &opened {
            Ok(_) => {
                self.open_seconds.record(started.elapsed());
                if let Some(forwards) = &self.forwards {
                    forwards.increment(1);
                }
            }
            Err(error) => crate::metrics::stream_open_failed(error.as_str()),
        }
        opened
    }

    async fn open(
        self: &Arc<Self>,
        worker: usize,
        tunnel: &LiveTunnel<Self>,
        origin: StreamOrigin,
        purpose: Purpose,
    ) -> Result<(TunnelStream, StreamId), OpenError> {
        if self.ended.is_cancelled() {
            return Err(self.disconnected());
        }
        let slot = StreamSlot::try_take(self, self.max_streams).ok_or(OpenError::Full)?;
        let id = StreamId(random_bytes());
        let stream = if self.pools.is_empty() {
            self.request_stream(slot, worker, tunnel.view.id, id, origin.source.ip())
                .await?
        } else {
            let open = StreamOpen {
                tunnel_id: tunnel.view.id.to_string(),
                stream_id: id.to_string(),
                source_ip: Some(origin.source.ip().into()),
                moved: false,
                exchanges: self.reports_delivery && purpose != Purpose::Bytes,
                forward: if self.is_peer() {
                    peer::header(tunnel, origin, purpose)
                } else {
                    Vec::new()
                },
            };
            let stream = match purpose {
                Purpose::Exchanges => {
                    let budget = Budget::exchanges(UP_LIMIT);
                    self.open_small(slot, worker, &open, budget).await?
                }
                Purpose::Bytes | Purpose::TlsExchanges => {
                    self.open_small(slot, worker, &open, Budget::bytes())
                        .await?
                }
                Purpose::Shared => {
                    let idle = self.take_standing(worker).await?;
                    self.open_standing(slot, worker, idle, &open)?
                }
            };
            if open.exchanges {
                stream.with_exchanges()
            } else {
                stream
            }
        };
        Ok((stream, id))
    }

    /// Opens a stream on a standing connection.
    fn open_standing(
        self: &Arc<Self>,
        slot: StreamSlot,
        worker: usize,
        idle: pool::IdleConnection,
        open: &StreamOpen,
    ) -> Result<TunnelStream, OpenError> {
        let opened = idle.open(open).map_err(|_| self.disconnected())?;
        let pooled = PooledStream::new(opened, Arc::clone(self), worker);
        Ok(TunnelStream::standing(pooled, slot))
    }

    /// Takes a standing connection, and waits for a new one if none is idle.
    async fn take_standing(&self, worker: usize) -> Result<pool::IdleConnection, OpenError> {
        let pool = self.pools.get(worker).ok_or_else(|| self.disconnected())?;
        match pool.take(Instant::now()) {
            Checkout::Ready(idle, demand) => {
                self.demand(demand);
                Ok(idle)
            }
            Checkout::Queued(mut arrival, demand) => {
                self.demand(demand);
                let deadline = tokio::time::sleep(self.open_deadline);
                tokio::pin!(deadline);
                loop {
                    tokio::select! {
                        idle = &mut arrival => return idle.map_err(|_| self.disconnected()),
                        () = self.ended.cancelled() => return Err(self.disconnected()),
                        () = &mut deadline => return Err(OpenError::Deadline),
                        // The agent's dial may have failed. It is requested again within the time
                        // that this visitor has.
                        () = tokio::time::sleep(pool::DEMAND_RETRY) => {
                            self.demand(pool.demand(Instant::now()));
                        }
                    }
                }
            }
            Checkout::Closed => Err(self.disconnected()),
        }
    }

    /// Requests a connection for this stream from an agent without extensions.
    async fn request_stream(
        self: &Arc<Self>,
        slot: StreamSlot,
        worker: usize,
        tunnel: TunnelId,
        id: StreamId,
        source: IpAddr,
    ) -> Result<TunnelStream, OpenError> {
        let _permit = self.acquire_request().await?;
        let secret = hex::encode(random_bytes::<32>());
        let request = ProxyConnReq {
            tunnel_id: tunnel.to_string(),
            stream_id: id.to_string(),
            secret: Some(secret.clone().into()),
            source_ip: Some(source.into()),
            proxy_endpoint: None,
        };
        let (expected, arrival) = PendingStream::new(secret, self.client_id, worker);
        let _expectation = self.pending.expect_stream(id, expected);
        self.send(Kind::ProxyConnReq(request).into())
            .map_err(|()| OpenError::AgentDisconnected)?;
        let arrived = tokio::select! {
            arrived = tokio::time::timeout(self.open_deadline, arrival) => arrived,
            () = self.ended.cancelled() => return Err(OpenError::AgentDisconnected),
        };
        match arrived {
            Ok(Ok(Ok(stream))) => {
                self.opened_on_request.fetch_add(1, Ordering::Relaxed);
                Ok(TunnelStream::dedicated(stream, slot))
            }
            Ok(Ok(Err(refusal))) => Err(OpenError::Refused(refusal)),
            Ok(Err(_)) => Err(OpenError::AgentDisconnected),
            Err(_) => Err(OpenError::Deadline),
        }
    }

    /// Waits for a permit to request a connection. The deadline applies to the agent, not to the
    /// queue: an agent that opens connections is only slow, and each of them ends some visitor's
    /// wait.
    async fn acquire_request(&self) -> Result<SemaphorePermit<'_>, OpenError> {
        let mut acquiring = pin!(self.request_permits.acquire());
        loop {
            let opened_before = self.opened_on_request.load(Ordering::Relaxed);
            match tokio::time::timeout(self.open_deadline, &mut acquiring).await {
                Ok(permit) => return permit.map_err(|_| OpenError::AgentDisconnected),
                Err(_) if self.opened_on_request.load(Ordering::Relaxed) != opened_before => {}
                Err(_) => return Err(OpenError::Deadline),
            }
        }
    }

    /// Requests `count` further standing connections.
    fn demand(&self, count: usize) {
        if count == 0 {
            return;
        }
        let request = PoolReq {
            secret: self.pool_secret.clone(),
            count: u32::try_from(count).unwrap_or(u32::MAX),
            idle_timeout_ms: u32::try_from(pool::IDLE.as_millis()).unwrap_or(u32::MAX),
        };
        // If the channel is full or gone, the stream does not arrive and the caller times out.
        self.send(Kind::PoolReq(request).into()).ok();
    }

    fn send(&self, message: Message) -> Result<(), ()> {
        self.outbox
            .try_send(ControlCommand::Send(Box::new(message)))
            .map_err(drop)
    }

    /// Notifies the agent that another channel has taken over one of its tunnels.
    pub(crate) fn taken_over(&self, tunnel: TunnelId) {
        // An agent that does not read notices it at the end of its channel.
        self.outbox.try_send(ControlCommand::TakenOver(tunnel)).ok();
    }

    /// Notifies the agent that a caller of the Engine API closed one of its tunnels.
    pub(crate) fn closed_by_caller(&self, tunnel: TunnelId) {
        // As above: the tunnel is closed in any case.
        self.outbox.try_send(ControlCommand::Closed(tunnel)).ok();
    }

    fn pool(&self, worker: usize) -> Option<&Pool> {
        self.pools.get(worker)
    }

    /// Numbers of connections and of streams on them.
    fn pool_stats(&self) -> PoolStats {
        let mut all = PoolStats::default();
        for pool in &self.pools {
            let (idle, busy) = pool.counts();
            all.idle += idle;
            all.busy += busy;
        }
        for lanes in &self.lanes {
            let (lanes, streams) = lanes.counts();
            all.lanes += lanes;
            all.on_lanes += streams;
        }
        all.busy = all.busy.saturating_sub(all.lanes);
        all
    }

    /// The worker that needs a new standing connection most.
    fn neediest_worker(&self) -> usize {
        let needs = self.pools.iter().map(Pool::demand_score).enumerate();
        needs
            .max_by_key(|(_, need)| *need)
            .map_or(0, |(worker, _)| worker)
    }

    /// Requests the spare connections of every pool.
    fn fill_pools(&self, now: Instant) {
        let demand = self.pools.iter().map(|pool| pool.demand(now)).sum();
        self.demand(demand);
    }

    /// Closes idle connections, and repeats requests that were not fulfilled.
    fn trim_pools(&self, now: Instant) {
        for pool in &self.pools {
            drop(pool.trim(now));
            self.demand(pool.demand(now));
        }
        self.lanes.iter().for_each(|lanes| lanes.trim(now));
    }

    /// The error of a stream after the end of the control channel.
    fn disconnected(&self) -> OpenError {
        if self.is_peer() {
            OpenError::PeerDisconnected
        } else {
            OpenError::AgentDisconnected
        }
    }

    /// Returns true if the agent's credential was revoked.
    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Relaxed)
    }

    /// Ends admission: idle connections are closed, and pending requests fail.
    fn end_admission(&self) {
        self.ended.cancel();
        for pool in &self.pools {
            drop(pool.close());
        }
        self.lanes.iter().for_each(Lanes::close);
    }
}

impl LoadMetric for Agent {
    fn load(&self) -> usize {
        self.streams.count()
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

impl AsRef<Counter> for Agent {
    fn as_ref(&self) -> &Counter {
        &self.streams
    }
}

/// One of an agent's streams, counted for its lifetime.
pub(crate) type StreamSlot = Permit<Agent>;
