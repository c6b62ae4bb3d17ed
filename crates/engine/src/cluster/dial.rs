//! Connections to the engines that this one forwards to.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use transport::permit::{Counter, Permit};
use transport::{Socket, TlsStream};
use types::backoff::Backoff;
use types::id::TunnelId;
use wire::cluster::{ConnectionPurpose, PeerFrame};

use super::control::{self, ControlStream, HELLO_DEADLINE, PING_INTERVAL, SILENCE};
use super::directory::PeerAddress;
use super::names::engine_name;
use super::peers::{Cluster, MAX_PEERS, Peer};
use super::tls;
use crate::agents::{Agent, PeerDemand, PeerParts};
use crate::core::Core;
use crate::random::random_bytes;

/// Data connections to one engine that are being opened at the same time.
const MAX_DIALS: usize = 64;

/// Data connections that fail one after another before the engine counts as unreachable, although
/// its control connection is open.
const MAX_FAILURES: usize = 5;

/// Longest wait between two attempts. An engine has few peers, so it tries often.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Longest first wait.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// Interval for checking idle data connections, as towards agents.
const TRIM_INTERVAL: Duration = Duration::from_secs(15);

/// Keeps connections to all engines of the directory, until agents are disconnected.
pub(crate) async fn keep_connected(core: Arc<Core>, cluster: Arc<Cluster>) {
    let mut listed = cluster.directory.peers();
    let stop = core.agents_stop.clone();
    let mut kept: HashMap<Box<str>, (Arc<Peer>, CancellationToken)> = HashMap::new();
    loop {
        let wanted = Arc::clone(&listed.borrow_and_update());
        if wanted.len() > MAX_PEERS {
            warn!(
                limit = MAX_PEERS,
                "the cluster has more engines than this one connects to"
            );
        }
        let wanted = wanted.iter().filter(|peer| peer.engine != cluster.engine);
        let wanted: HashMap<&str, &PeerAddress> = wanted
            .take(MAX_PEERS)
            .map(|peer| (peer.engine.as_str(), peer))
            .collect();
        kept.retain(|engine, (peer, over)| {
            let stays = wanted.get(&**engine) == Some(&&peer.address);
            if !stays {
                over.cancel();
            }
            stays
        });
        for (engine, address) in wanted {
            if kept.contains_key(engine) {
                continue;
            }
            let (peer, over) = (Peer::new(address.clone()), stop.child_token());
            let keeping = keep(
                Arc::clone(&peer),
                Arc::clone(&core),
                Arc::clone(&cluster),
                over.clone(),
            );
            core.agents.spawn(keeping);
            kept.insert(engine.into(), (peer, over));
        }
        let peers = kept.iter();
        cluster.set_peers(
            peers
                .map(|(engine, (peer, _))| (engine.clone(), Arc::clone(peer)))
                .collect(),
        );
        tokio::select! {
            changed = listed.changed() => if changed.is_err() {
                // The list is final.
                return stop.cancelled().await;
            },
            () = stop.cancelled() => return,
        }
    }
}

/// Keeps connections to one engine.
async fn keep(peer: Arc<Peer>, core: Arc<Core>, cluster: Arc<Cluster>, over: CancellationToken) {
    let mut backoff = Backoff::new(FIRST_WAIT, MAX_WAIT);
    loop {
        let connecting = Box::pin(Link::connect(&peer, &core, &cluster));
        match over.run_until_cancelled(connecting).await {
            None => return,
            Some(Ok(mut link)) => {
                backoff.reset();
                let engine = &peer.address.engine;
                info!(engine, "connected to another engine");
                let end = link.run(&over, true).await;
                info!(
                    engine,
                    reason = end.as_str(),
                    "a connection to another engine ended"
                );
                if end == LinkEnd::Draining {
                    // It serves until it ends, while its successor may be there already.
                    let over = over.clone();
                    core.agents.spawn(async move {
                        link.run(&over, false).await;
                    });
                }
            }
            Some(Err(error)) => {
                debug!(engine = peer.address.engine, %error, "another engine is not reachable");
            }
        }
        let wait = backoff.next_wait(u64::from_ne_bytes(random_bytes()));
        tokio::select! {
            () = sleep(wait) => {}
            () = over.cancelled() => return,
        }
    }
}

/// The connections to one process of another engine.
struct Link {
    peer: Arc<Peer>,
    core: Arc<Core>,
    cluster: Arc<Cluster>,
    control: ControlStream,
    agent: Arc<Agent>,
    demand: PeerDemand,
    /// Data connections that are being opened.
    dials: Arc<Counter>,
}

/// Reasons why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkEnd {
    Closed,
    Failed,
    Silent,
    /// Data connections cannot be opened.
    Unreachable,
    /// The engine is stopping. The link still works.
    Draining,
    /// This engine is stopping, or the other one is no longer listed.
    Stopping,
}

impl LinkEnd {
    fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Failed => "failed",
            Self::Silent => "silent",
            Self::Unreachable => "unreachable",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
        }
    }
}

impl Link {
    /// Opens a control connection.
    async fn connect(
        peer: &Arc<Peer>,
        core: &Arc<Core>,
        cluster: &Arc<Cluster>,
    ) -> io::Result<Self> {
        let purpose = ConnectionPurpose::Control;
        let mut control = open(&peer.address, cluster, purpose).await?;
        let answer = timeout(HELLO_DEADLINE, control.read_first()).await;
        match answer.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
            PeerFrame::Hello(identity)
                if identity.cluster == cluster.name && identity.engine == peer.address.engine => {}
            PeerFrame::Refusal(error) => return Err(io::Error::other(error.to_string())),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        let workers = core.workers().iter();
        let (agent, demand) = Agent::of_peer(PeerParts {
            tasks: core.agents.clone(),
            runtimes: workers.map(|worker| worker.runtime.clone()).collect(),
            client_id: core.live.new_client_id(),
            open_seconds: core.metrics.stream_open_seconds(),
            forwards: crate::metrics::cluster_forwards(&peer.address.engine, "out"),
        });
        cluster.connect(peer, &agent);
        agent.fill_peer(std::time::Instant::now());
        Ok(Self {
            peer: Arc::clone(peer),
            core: Arc::clone(core),
            cluster: Arc::clone(cluster),
            control,
            agent,
            demand,
            dials: Arc::default(),
        })
    }

    /// Serves the link until it ends, or until the engine is stopping if `reports_drain`.
    async fn run(&mut self, over: &CancellationToken, reports_drain: bool) -> LinkEnd {
        let end = self.exchange(over, reports_drain).await;
        if end != LinkEnd::Draining {
            self.agent.end_peer();
            self.core.drop_forwarded_upstreams();
            self.cluster.disconnect(&self.peer, &self.agent);
        }
        end
    }

    async fn exchange(&mut self, over: &CancellationToken, reports_drain: bool) -> LinkEnd {
        let (results, mut dialled) = mpsc::channel(MAX_DIALS);
        let mut failures = 0;
        let mut heard = Instant::now();
        let mut ping = interval(PING_INTERVAL);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut trim = interval(TRIM_INTERVAL);
        trim.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Every branch is cancel safe.
            tokio::select! {
                received = self.control.next() => {
                    heard = Instant::now();
                    match received {
                        Ok(None) => return LinkEnd::Closed,
                        Err(error) => {
                            debug!(%error, "a control connection to another engine failed");
                            return LinkEnd::Failed;
                        }
                        Ok(Some(PeerFrame::Ended(tunnels))) => self.forget(&tunnels),
                        Ok(Some(PeerFrame::Drain)) => {
                            // Streams without a request would delay its end.
                            self.agent.set_draining();
                            self.core.drop_forwarded_upstreams();
                            if reports_drain {
                                return LinkEnd::Draining;
                            }
                        }
                        Ok(Some(PeerFrame::Closing)) => self.agent.close_websockets(),
                        Ok(Some(PeerFrame::Hello(_) | PeerFrame::Refusal(_))) => {
                            return LinkEnd::Failed;
                        }
                        Ok(Some(PeerFrame::Ping)) => {}
                    }
                }
                count = self.demand.next() => self.dial(count, &results),
                // The sender is in this function.
                Some(is_open) = dialled.recv() => {
                    failures = if is_open { 0 } else { failures + 1 };
                    // A process that replaces a stopping engine accepts no connections for it.
                    if failures >= MAX_FAILURES && !self.agent.is_draining() {
                        return LinkEnd::Unreachable;
                    }
                }
                _ = ping.tick() => if self.control.send(&PeerFrame::Ping).await.is_err() {
                    return LinkEnd::Failed;
                },
                _ = trim.tick() => self.agent.trim_peer(std::time::Instant::now()),
                () = sleep_until(heard + SILENCE) => return LinkEnd::Silent,
                () = over.cancelled() => return LinkEnd::Stopping,
            }
        }
    }

    /// Closes idle connections to the services of tunnels that are offline there.
    fn forget(&self, tunnels: &[String]) {
        let ids = tunnels.iter().filter_map(|id| id.parse::<TunnelId>().ok());
        let ids: Vec<TunnelId> = ids.collect();
        // First, so that a connection which is kept meanwhile is closed as well.
        self.agent.note_ended(&ids);
        self.core.drop_upstreams(ids);
    }

    /// Opens further data connections. `results` gets the success of each.
    fn dial(&self, count: usize, results: &mpsc::Sender<bool>) {
        for _ in 0..count {
            // The pools repeat their request.
            let Some(permit) = Permit::try_take(&self.dials, MAX_DIALS) else {
                return;
            };
            let (core, cluster) = (Arc::clone(&self.core), Arc::clone(&self.cluster));
            let (peer, agent) = (Arc::clone(&self.peer), Arc::clone(&self.agent));
            let results = results.clone();
            self.core.agents.spawn(async move {
                let opening = Box::pin(open(&peer.address, &cluster, ConnectionPurpose::Data));
                let opened = opening.await;
                // A result that is lost only delays the end of the link, or the link has ended.
                results.try_send(opened.is_ok()).ok();
                match opened {
                    Ok(opened) => join(opened.into_stream(), &agent, &core),
                    Err(error) => debug!(%error, "a data connection to another engine failed"),
                }
                drop(permit);
            });
        }
    }
}

/// Adds a data connection to the pool of the worker that needs it most.
fn join(mut stream: TlsStream, agent: &Arc<Agent>, core: &Core) {
    let target = agent.next_peer_worker();
    let Some(worker) = core.workers().get(target) else {
        return;
    };
    // The pool polls idle connections, so the connection must be registered on the runtime that
    // polls it.
    if stream.get_mut().0.detach().is_ok() {
        let agent = Arc::clone(agent);
        worker
            .runtime
            .spawn(async move { agent.add_peer_connection(target, stream) });
    }
}

/// Opens a connection to another engine, and sends the hello.
async fn open(
    to: &PeerAddress,
    cluster: &Cluster,
    purpose: ConnectionPurpose,
) -> io::Result<ControlStream> {
    let opening = async {
        let name = engine_name(&cluster.name, &to.engine);
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        let stream = TcpStream::connect(to.address.as_str()).await?;
        stream.set_nodelay(true)?;
        control::keep_alive(&stream)?;
        let address = stream.peer_addr()?;
        let config = Arc::clone(&cluster.tls.client);
        let stream = transport::connect(config, name, Socket::new(stream, address)).await?;
        if !tls::is_engine(&stream, &cluster.name, &to.engine) {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        let mut opened = ControlStream::new(stream);
        let hello = PeerFrame::Hello(cluster.identity(purpose));
        opened.send(&hello).await?;
        Ok(opened)
    };
    timeout(HELLO_DEADLINE, opening)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
