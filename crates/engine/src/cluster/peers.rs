//! The state of this engine's connections to the others, in both directions.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use transport::permit::Counter;
use transport::rendezvous::MigrationRendezvous;
use types::id::TunnelId;
use wire::cluster::{ConnectionPurpose, MAX_ENDED, PeerIdentity, is_label};

use super::directory::{ClusterDirectory, PeerAddress, RemoteTunnel};
use super::member::{ClusterError, ClusterMember};
use super::names::engine_name;
use super::tls::PeerTls;
use crate::access::Tenancy;
use crate::agents::Agent;
use crate::live::{LiveTunnel, Route};
use crate::random::random_bytes;

/// Processes of other engines that are connected at the same time: those of [`MAX_PEERS`] engines,
/// each of which may be replaced by another process at the moment.
const MAX_INBOUND: usize = 2 * MAX_PEERS;

/// Engines that this one connects to.
pub(super) const MAX_PEERS: usize = 64;

/// Lists of ended tunnels that may wait for one engine. An engine that is slower keeps idle
/// connections to their services until these expire.
const MAX_ENDED_LISTS: usize = 256;

/// This engine in its cluster.
pub(crate) struct Cluster {
    pub(super) name: String,
    pub(super) engine: String,
    /// Id of this process.
    instance: String,
    pub(super) tls: PeerTls,
    pub(super) directory: Arc<dyn ClusterDirectory>,
    /// The engines that this one forwards to.
    peers: ArcSwap<HashMap<Box<str>, Arc<Peer>>>,
    /// Changes whenever an engine is connected or disconnected.
    connections: watch::Sender<u64>,
    /// The engines that forward to this one, by the ids of their processes.
    inbound: Mutex<HashMap<String, Arc<InboundPeer>>>,
    /// Handshakes in progress of connections from other engines.
    pub(super) handshakes: Arc<Counter>,
    /// Tunnels that went offline here.
    pub(super) ended: broadcast::Sender<Arc<[String]>>,
}

/// An engine that this one forwards to.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: PeerAddress,
    /// Handle of the current connections.
    link: ArcSwapOption<Agent>,
}

/// A process of an engine that forwards to this one.
pub(super) struct InboundPeer {
    /// Id of the engine.
    pub(super) engine: String,
    /// Connections for streams that leave their lanes.
    pub(super) moves: Arc<MigrationRendezvous>,
    /// Cancelled when its control connection has ended.
    pub(super) over: CancellationToken,
    pub(super) connections: Arc<Counter>,
    pub(super) lanes: Arc<Counter>,
    pub(super) streams: Arc<Counter>,
    /// Number of streams that it has forwarded.
    pub(super) forwards: metrics::Counter,
}

impl Cluster {
    /// # Errors
    /// [`ClusterError`].
    pub(crate) fn new(member: ClusterMember) -> Result<Arc<Self>, ClusterError> {
        for (name, id) in [("cluster", &member.cluster), ("engine", &member.engine)] {
            if !is_label(id) {
                return Err(ClusterError::Id(name));
            }
        }
        Ok(Arc::new(Self {
            tls: PeerTls::load(&member.files, engine_name(&member.cluster, &member.engine))?,
            name: member.cluster,
            engine: member.engine,
            instance: hex::encode(random_bytes::<16>()),
            directory: member.directory,
            peers: ArcSwap::default(),
            connections: watch::Sender::default(),
            inbound: Mutex::default(),
            handshakes: Arc::default(),
            ended: broadcast::Sender::new(MAX_ENDED_LISTS),
        }))
    }

    /// Id of this engine.
    pub(crate) fn engine(&self) -> &str {
        &self.engine
    }

    /// The directory of the names of other engines.
    pub(crate) fn directory(&self) -> &Arc<dyn ClusterDirectory> {
        &self.directory
    }

    /// The hello of a connection to or from another engine.
    pub(super) fn identity(&self, purpose: ConnectionPurpose) -> PeerIdentity {
        PeerIdentity {
            cluster: self.name.clone(),
            engine: self.engine.clone(),
            instance: self.instance.clone(),
            purpose,
        }
    }

    /// Destination of a host name, in lower case, at another engine. `None` if it has no owner
    /// in the cluster.
    pub(crate) fn route(&self, hostname: &str, tenancy: &Tenancy) -> Option<Route<Agent>> {
        let Some(remote) = self.directory.servers(hostname) else {
            // Its agent has left within the hold time, or has just opened it.
            return self.directory.is_held(hostname).then_some(Route::Offline);
        };
        Some(match self.tunnel(&remote, tenancy) {
            Some(tunnel) => Route::Online(tunnel),
            None => Route::Offline,
        })
    }

    /// A tunnel of another engine for a visitor; `None` if no engine that has it is connected.
    pub(crate) fn tunnel(
        &self,
        remote: &RemoteTunnel,
        tenancy: &Tenancy,
    ) -> Option<Arc<LiveTunnel<Agent>>> {
        self.choose(remote, tenancy, |_| true)
    }

    /// The same tunnel at another engine than the one that failed, which forwarded nothing.
    pub(crate) fn failover_target(
        &self,
        failed: &LiveTunnel<Agent>,
        tenancy: &Tenancy,
    ) -> Option<Arc<LiveTunnel<Agent>>> {
        let remote = self.directory.servers(failed.routed_hostname()?)?;
        if !remote.can_replace(failed) {
            return None;
        }
        self.choose(&remote, tenancy, |agent| {
            !std::ptr::eq(agent, Arc::as_ptr(&failed.agent))
        })
    }

    fn choose(
        &self,
        remote: &RemoteTunnel,
        tenancy: &Tenancy,
        admits: impl Fn(&Agent) -> bool,
    ) -> Option<Arc<LiveTunnel<Agent>>> {
        let project = tenancy.project(remote.view.project_id.as_deref()?)?;
        let peers = self.peers.load();
        let mut stopping = None;
        for server in &remote.servers {
            let Some(peer) = peers.get(&*server.engine) else {
                continue;
            };
            let Some(agent) = peer.link.load_full() else {
                continue;
            };
            if agent.is_ended() || !admits(&agent) {
                continue;
            }
            if agent.is_draining() {
                stopping.get_or_insert((server, agent));
            } else {
                return Some(remote.at(server, &agent, &project));
            }
        }
        stopping.map(|(server, agent)| remote.at(server, &agent, &project))
    }

    /// Replaces the engines that this one forwards to.
    pub(super) fn set_peers(&self, peers: HashMap<Box<str>, Arc<Peer>>) {
        self.peers.store(Arc::new(peers));
        self.count_change();
    }

    /// Waits until this engine is connected to another one, or no longer connected.
    pub(crate) async fn wait_for_peer(&self, engine: &str, is_connected: bool) {
        let mut connections = self.connections.subscribe();
        let is_now = |_: &u64| {
            let peers = self.peers.load();
            let link = peers.get(engine).and_then(|peer| peer.link.load_full());
            link.is_some_and(|agent| !agent.is_ended()) == is_connected
        };
        // The sender is in this value.
        connections.wait_for(is_now).await.ok();
    }

    fn count_change(&self) {
        self.connections.send_modify(|changes| *changes += 1);
    }

    /// Uses new connections to an engine from now on.
    pub(super) fn connect(&self, peer: &Peer, agent: &Arc<Agent>) {
        peer.link.store(Some(Arc::clone(agent)));
        crate::metrics::cluster_connected(&peer.address.engine, true);
        self.count_change();
    }

    /// Forgets connections that have ended, unless newer ones replaced them.
    pub(super) fn disconnect(&self, peer: &Peer, agent: &Arc<Agent>) {
        let current = peer.link.load();
        let is_current = |current: &Arc<Agent>| Arc::ptr_eq(current, agent);
        if current.as_ref().is_some_and(is_current) {
            drop(peer.link.compare_and_swap(&current, None));
            crate::metrics::cluster_connected(&peer.address.engine, false);
        }
        self.count_change();
    }

    /// Adds a process of another engine that forwards to this one. `None` at the limit, or if the
    /// process is connected already.
    pub(super) fn admit(&self, identity: &PeerIdentity) -> Option<Arc<InboundPeer>> {
        let mut inbound = self.inbound.lock();
        if inbound.len() >= MAX_INBOUND || inbound.contains_key(&identity.instance) {
            return None;
        }
        let peer = Arc::new(InboundPeer {
            engine: identity.engine.clone(),
            moves: Arc::default(),
            over: CancellationToken::new(),
            connections: Arc::default(),
            lanes: Arc::default(),
            streams: Arc::default(),
            forwards: crate::metrics::cluster_forwards(&identity.engine, "in"),
        });
        inbound.insert(identity.instance.clone(), Arc::clone(&peer));
        Some(peer)
    }

    /// The process that a data connection belongs to. Its certificate must be the one of the control
    /// connection's engine.
    pub(super) fn inbound(&self, identity: &PeerIdentity) -> Option<Arc<InboundPeer>> {
        let inbound = self.inbound.lock();
        let peer = inbound.get(&identity.instance)?;
        (peer.engine == identity.engine).then(|| Arc::clone(peer))
    }

    /// Removes a process whose control connection has ended.
    pub(super) fn forget(&self, identity: &PeerIdentity) {
        self.inbound.lock().remove(&identity.instance);
    }

    /// Tells the engines that forward to this one that tunnels went offline here, so that they close
    /// idle connections to their services.
    pub(crate) fn announce_ended(&self, tunnels: &[TunnelId]) {
        for tunnels in tunnels.chunks(MAX_ENDED) {
            let ids = tunnels.iter().map(ToString::to_string);
            // Without a receiver no engine is connected.
            self.ended.send(ids.collect()).ok();
        }
    }
}

impl Peer {
    pub(super) fn new(address: PeerAddress) -> Arc<Self> {
        Arc::new(Self {
            address,
            link: ArcSwapOption::empty(),
        })
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.name)
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use rcgen::generate_simple_self_signed;

    use super::super::tls::ClusterFiles;
    use super::*;

    /// A cluster with one engine.
    #[derive(Debug)]
    struct EmptyDirectory;

    impl ClusterDirectory for EmptyDirectory {
        fn servers(&self, _: &str) -> Option<Arc<RemoteTunnel>> {
            None
        }

        fn peers(&self) -> watch::Receiver<Arc<[PeerAddress]>> {
            watch::channel(Arc::from([])).1
        }

        fn ports(&self) -> watch::Receiver<Arc<[Arc<RemoteTunnel>]>> {
            watch::channel(Arc::from([])).1
        }
    }

    fn cluster(engine: &str) -> Result<Arc<Cluster>, ClusterError> {
        let folder = tempfile::tempdir().unwrap();
        let made = generate_simple_self_signed([engine_name("prod", "engine-1")]).unwrap();
        let files = ClusterFiles {
            authority: folder.path().join("ca.pem"),
            certificate: folder.path().join("engine.pem"),
            key: folder.path().join("engine.key"),
        };
        std::fs::write(&files.authority, made.cert.pem()).unwrap();
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        Cluster::new(ClusterMember {
            cluster: "prod".to_owned(),
            engine: engine.to_owned(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            files,
            directory: Arc::new(EmptyDirectory),
        })
    }

    fn process(number: usize) -> PeerIdentity {
        PeerIdentity {
            cluster: "prod".to_owned(),
            engine: "engine-2".to_owned(),
            instance: format!("{number:032x}"),
            purpose: ConnectionPurpose::Control,
        }
    }

    #[test]
    fn ids_are_checked() {
        assert!(cluster("engine-1").is_ok());
        let refused = cluster("Engine 1");
        assert!(
            matches!(refused, Err(ClusterError::Id("engine"))),
            "{refused:?}"
        );
    }

    #[test]
    fn connected_processes_are_limited() {
        let cluster = cluster("engine-1").unwrap();
        assert!(cluster.admit(&process(0)).is_some());
        // The same process is connected once.
        assert!(cluster.admit(&process(0)).is_none());
        for number in 1..128 {
            assert!(cluster.admit(&process(number)).is_some(), "{number}");
        }
        assert!(cluster.admit(&process(128)).is_none());
        cluster.forget(&process(0));
        assert!(cluster.admit(&process(128)).is_some());
    }

    #[test]
    fn a_data_connection_belongs_to_the_engine_of_its_control_connection() {
        let cluster = cluster("engine-1").unwrap();
        assert!(cluster.inbound(&process(0)).is_none());
        let _peer = cluster.admit(&process(0));
        assert!(cluster.inbound(&process(0)).is_some());
        let other = PeerIdentity {
            engine: "engine-3".to_owned(),
            ..process(0)
        };
        assert!(cluster.inbound(&other).is_none());
    }

    #[test]
    fn an_engine_that_is_slow_loses_only_lists_of_ended_tunnels() {
        let cluster = cluster("engine-1").unwrap();
        let mut ended = cluster.ended.subscribe();
        let tunnel = TunnelId::new(1, [2; types::id::RANDOM_BYTES]);
        cluster.announce_ended(&vec![tunnel; MAX_ENDED + 1]);
        assert_eq!(ended.try_recv().unwrap().len(), MAX_ENDED);
        assert_eq!(ended.try_recv().unwrap().len(), 1);
        for _ in 0..=MAX_ENDED_LISTS {
            cluster.announce_ended(&[tunnel]);
        }
        assert!(ended.try_recv().is_err());
        assert!(ended.try_recv().is_ok());
    }
}
