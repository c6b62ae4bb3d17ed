//! Another engine of the cluster, in the place of an agent.
//!
//! The streams of a tunnel whose agent is connected to another engine are opened on standing
//! connections and lanes to that engine, as towards an agent. One difference is who connects: this
//! engine itself opens the connections that its pools request. The other one is the header in the
//! opening of each stream, which tells the engine the visitor.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use metrics::Histogram;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transport::TlsStream;
use transport::permit::Permit;
use transport::standing::StandingConnection;
use types::id::{ClientId, TunnelId};
use wire::Kind;
use wire::cluster::{ForwardedVisitor, StreamProtocol};
use wire::pool::Side;

use super::{Agent, AgentInfo, ControlCommand, Purpose, StreamOrigin, TunnelStream};
use crate::config::FixedTimeouts;
use crate::live::LiveTunnel;

/// Streams that are forwarded to one engine at the same time. The limits of the agents apply there.
const MAX_STREAMS: usize = 65_536;

/// Tunnels of which it is remembered that they went offline at an engine, at least: those that end
/// during the exchanges that are in progress.
const ENDED_TUNNELS: usize = 4096;

/// Reports of a connected engine.
#[derive(Default)]
pub(super) struct PeerState {
    /// Cancelled shortly before the end of its drain.
    closing: CancellationToken,
    ended: Mutex<EndedTunnels>,
}

/// Tunnels that went offline. An exchange may outlive its tunnel, and its connection must not serve
/// another visitor.
#[derive(Default)]
struct EndedTunnels {
    recent: HashSet<TunnelId>,
    earlier: HashSet<TunnelId>,
}

impl EndedTunnels {
    fn add(&mut self, tunnel: TunnelId) {
        if self.recent.len() >= ENDED_TUNNELS {
            self.earlier = std::mem::take(&mut self.recent);
        }
        self.recent.insert(tunnel);
    }

    fn contains(&self, tunnel: &TunnelId) -> bool {
        self.recent.contains(tunnel) || self.earlier.contains(tunnel)
    }
}

/// The properties of a connected engine.
pub(crate) struct PeerParts {
    /// Tasks of the lanes.
    pub(crate) tasks: TaskTracker,
    /// Runtimes of the workers, by index.
    pub(crate) runtimes: Box<[Handle]>,
    pub(crate) client_id: ClientId,
    pub(crate) open_seconds: Histogram,
    /// Number of streams that were forwarded to the engine.
    pub(crate) forwards: metrics::Counter,
}

/// The demand of the pools of a connected engine.
pub(crate) struct PeerDemand(mpsc::Receiver<ControlCommand>);

impl PeerDemand {
    /// The next number of connections to open. Cancel safe.
    pub(crate) async fn next(&mut self) -> usize {
        while let Some(command) = self.0.recv().await {
            if let ControlCommand::Send(message) = command
                && let Some(Kind::PoolReq(request)) = message.kind
            {
                return usize::try_from(request.count).unwrap_or(usize::MAX);
            }
        }
        // Without a handle no pool requests a connection any more.
        std::future::pending().await
    }
}

impl Agent {
    /// The handle of an engine whose control connection is open.
    pub(crate) fn of_peer(parts: PeerParts) -> (Arc<Self>, PeerDemand) {
        let workers = parts.runtimes.len();
        let (agent, commands) = Self::new(AgentInfo {
            pending: Arc::default(),
            tasks: parts.tasks,
            runtimes: parts.runtimes,
            client_id: parts.client_id,
            pools: workers,
            lanes: workers,
            reports_delivery: true,
            forwards: Some(parts.forwards),
            max_streams: MAX_STREAMS,
            open_deadline: FixedTimeouts::default().stream_open,
            open_seconds: parts.open_seconds,
        });
        (agent, PeerDemand(commands))
    }

    /// Returns true for another engine of the cluster.
    pub(crate) fn is_peer(&self) -> bool {
        self.forwards.is_some()
    }

    /// Returns true once its control channel has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Prefers other engines for new streams, because this one is stopping. Connections to services
    /// are not kept.
    pub(crate) fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Returns true for an engine that is stopping.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Closes the WebSockets through an engine whose drain ends soon.
    pub(crate) fn close_websockets(&self) {
        if let Some(peer) = &self.peer {
            peer.closing.cancel();
        }
    }

    /// For another engine: cancelled when the WebSockets through it are closed.
    pub(crate) fn closing(&self) -> Option<CancellationToken> {
        self.peer.as_ref().map(|peer| peer.closing.clone())
    }

    /// Notes tunnels that went offline at the engine.
    pub(crate) fn note_ended(&self, tunnels: &[TunnelId]) {
        if let Some(peer) = &self.peer {
            let mut ended = peer.ended.lock();
            for tunnel in tunnels {
                ended.add(*tunnel);
            }
        }
    }

    /// For another engine: true while connections to the service of a tunnel are kept. Its control
    /// connection exists, it is not stopping, and the tunnel has not gone offline there.
    pub(crate) fn keeps_connections(&self, tunnel: &TunnelId) -> Option<bool> {
        let peer = self.peer.as_ref()?;
        let is_open = !self.is_ended() && !self.is_draining();
        Some(is_open && !peer.ended.lock().contains(tunnel))
    }

    /// Ends the forwarding to an engine whose control connection has ended. Streams in use continue
    /// until they end or break.
    pub(crate) fn end_peer(&self) {
        self.end_admission();
    }

    /// Requests the spare connections of a connected engine.
    pub(crate) fn fill_peer(&self, now: Instant) {
        self.fill_pools(now);
    }

    /// Closes idle connections, and repeats requests that were not fulfilled.
    pub(crate) fn trim_peer(&self, now: Instant) {
        self.trim_pools(now);
    }

    /// The worker that gets the next connection.
    pub(crate) fn next_peer_worker(&self) -> usize {
        self.neediest_worker()
    }

    /// Adds a connection on the runtime of its worker. It is closed if the control connection has
    /// ended.
    pub(crate) fn add_peer_connection(&self, worker: usize, stream: TlsStream) {
        if let Some(pool) = self.pool(worker) {
            pool.add(
                StandingConnection::new(stream, Side::Engine),
                Instant::now(),
            );
        }
    }
}

impl TunnelStream {
    /// Returns true if the stream was opened by this agent.
    pub(crate) fn is_of(&self, agent: &Arc<Agent>) -> bool {
        Permit::is_of(&self.slot, agent)
    }

    /// The agent, or the other engine, that opened the stream.
    pub(crate) fn agent(&self) -> &Agent {
        &self.slot
    }
}

/// The header of a stream that is forwarded to another engine.
pub(super) fn header(
    tunnel: &LiveTunnel<Agent>,
    origin: StreamOrigin,
    purpose: Purpose,
) -> Vec<u8> {
    let properties = &tunnel.view.properties;
    let name = match (tunnel.routed_hostname(), properties.port) {
        (Some(hostname), _) => hostname.to_owned(),
        (None, Some(port)) => format!("tcp:{port}"),
        (None, None) => tunnel.view.id.to_string(),
    };
    let forwarding = ForwardedVisitor {
        name,
        project: tunnel.project.id.to_string(),
        generation: tunnel.generation,
        source: origin.source,
        reference: origin.reference.map(|reference| reference.to_string()),
        is_terminated: origin.is_terminated,
        protocol: match purpose {
            Purpose::Bytes => StreamProtocol::Bytes,
            Purpose::Exchanges => StreamProtocol::Exchanges,
            Purpose::TlsExchanges => StreamProtocol::TlsExchanges,
            Purpose::Shared => StreamProtocol::Shared,
        },
    };
    forwarding.encode()
}

#[cfg(test)]
mod tests {
    use types::id::RANDOM_BYTES;

    use super::*;

    fn tunnel(number: usize) -> TunnelId {
        let mut random = [0; RANDOM_BYTES];
        random[..8].copy_from_slice(&number.to_be_bytes());
        TunnelId::new(1, random)
    }

    /// The exchange of a visitor ends after its tunnel, and the agent still serves the stream.
    #[tokio::test]
    async fn connections_to_a_tunnel_that_went_offline_are_not_kept() {
        let (agent, _demand) = Agent::of_peer(PeerParts {
            tasks: TaskTracker::new(),
            runtimes: Box::new([Handle::current()]),
            client_id: ClientId::new(1, [1; RANDOM_BYTES]),
            open_seconds: Histogram::noop(),
            forwards: metrics::Counter::noop(),
        });
        assert_eq!(agent.keeps_connections(&tunnel(1)), Some(true));
        agent.note_ended(&[tunnel(1)]);
        assert_eq!(agent.keeps_connections(&tunnel(1)), Some(false));
        assert_eq!(agent.keeps_connections(&tunnel(2)), Some(true));
        agent.set_draining();
        assert_eq!(agent.keeps_connections(&tunnel(2)), Some(false));
    }

    #[test]
    fn the_tunnels_that_went_offline_are_limited() {
        let mut ended = EndedTunnels::default();
        for number in 0..3 * ENDED_TUNNELS {
            ended.add(tunnel(number));
            assert!(ended.recent.len() + ended.earlier.len() <= 2 * ENDED_TUNNELS);
            let oldest = number.saturating_sub(ENDED_TUNNELS - 1);
            assert!(ended.contains(&tunnel(oldest)), "{number}");
        }
        assert!(!ended.contains(&tunnel(0)));
    }
}
