//! The names that other engines hold.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use credentials::LinkPasswords;
use tokio::sync::watch;
use types::tunnel::Tunnel;

use crate::access::TunnelPolicy;
use crate::agents::Agent;
use crate::directory::Project;
use crate::limits::Meters;
use crate::live::{ClientHandle, Health, Identity, LiveTunnel};

/// The names that the engines of the cluster hold, as this engine knows them now.
///
/// A request of a visitor whose tunnel is not at this engine calls [`Self::servers`], so an
/// implementation answers from memory and does not block. An entry contains the settings of its
/// tunnel, because the engine that receives the visitor makes the access decision.
pub trait ClusterDirectory: std::fmt::Debug + Send + Sync + 'static {
    /// The published tunnel with this host name, in lower case, at other engines. The same value is
    /// returned until the tunnel, its settings or its engines change.
    fn servers(&self, hostname: &str) -> Option<Arc<RemoteTunnel>>;

    /// Returns true if the host name belongs to an owner in the cluster, also without an agent.
    fn is_held(&self, hostname: &str) -> bool {
        self.servers(hostname).is_some()
    }

    /// The other engines of the cluster. This engine keeps connections to all of them.
    fn peers(&self) -> watch::Receiver<Arc<[PeerAddress]>>;

    /// The TCP tunnels of other engines, each with its port.
    fn ports(&self) -> watch::Receiver<Arc<[Arc<RemoteTunnel>]>>;
}

/// Another engine of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// Its id, which its certificate contains.
    pub engine: String,
    /// Host or address, and port, of its listener for other engines.
    pub address: String,
    /// Its zone, if it has one.
    pub zone: Option<String>,
}

/// A tunnel whose agents are connected to other engines, or several tunnels that share a name.
#[derive(Debug)]
pub struct RemoteTunnel {
    pub(super) view: Arc<Tunnel>,
    identity: Identity,
    policy: Arc<TunnelPolicy>,
    health: Arc<Health>,
    meters: Arc<Meters>,
    pub(super) servers: Box<[RemoteServer]>,
}

/// An engine to which an agent of the tunnel is connected.
#[derive(Debug)]
pub(super) struct RemoteServer {
    /// Its id.
    pub(super) engine: Box<str>,
    /// The tunnel there. Tunnels that share a name have ids of their own.
    view: Arc<Tunnel>,
    generation: Option<u64>,
    /// The tunnel for visitors, with the current connection to the engine.
    tunnel: ArcSwapOption<LiveTunnel<Agent>>,
}

impl RemoteTunnel {
    /// An entry of the directory of one engine. `engines` are the ids of the engines with agents of
    /// the tunnel, the preferred one first. `generation` is that of the name's ownership.
    pub fn new(
        view: Arc<Tunnel>,
        identity: Identity,
        link_passwords: Option<LinkPasswords>,
        generation: Option<u64>,
        engines: impl IntoIterator<Item = String>,
    ) -> Self {
        let policy = TunnelPolicy::compile(&view.properties).with_link_passwords(link_passwords);
        let engines = engines.into_iter();
        let servers: Box<[RemoteServer]> = engines
            .map(|engine| RemoteServer::new(engine, Arc::clone(&view), generation))
            .collect();
        Self::of_servers((view, identity), policy, servers)
    }

    /// A tunnel at these engines, the preferred one first. All of them have the same owner and access
    /// rules.
    pub(super) fn of_servers(
        (view, identity): (Arc<Tunnel>, Identity),
        policy: TunnelPolicy,
        servers: Box<[RemoteServer]>,
    ) -> Self {
        Self {
            view,
            identity,
            policy: Arc::new(policy),
            health: Arc::default(),
            meters: Arc::default(),
            servers,
        }
    }

    /// The entry of a tunnel of an engine, for the directories of the other engines.
    pub(crate) fn of(tunnel: &LiveTunnel<Agent>, generation: Option<u64>, engine: String) -> Self {
        let passwords = tunnel.policy.link_passwords();
        Self::new(
            Arc::clone(&tunnel.view),
            tunnel.identity.clone(),
            passwords.map(|passwords| LinkPasswords::clone(passwords)),
            generation,
            [engine],
        )
    }

    /// The object in lists and events.
    pub fn view(&self) -> &Arc<Tunnel> {
        &self.view
    }

    /// The owner of the name.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The link passwords of visitors.
    pub fn link_passwords(&self) -> Option<&Arc<LinkPasswords>> {
        self.policy.link_passwords()
    }

    /// Returns true if the other tunnel has the same owner and the same access rules.
    pub(super) fn can_replace(&self, other: &LiveTunnel<Agent>) -> bool {
        self.identity == other.identity && *self.policy == *other.policy
    }

    /// The tunnel for visitors, over the connection to one of its engines.
    pub(super) fn at(
        &self,
        server: &RemoteServer,
        agent: &Arc<Agent>,
        project: &Arc<Project>,
    ) -> Arc<LiveTunnel<Agent>> {
        let current = server.tunnel.load_full().filter(|tunnel| {
            Arc::ptr_eq(&tunnel.agent, agent) && Arc::ptr_eq(&tunnel.project, project)
        });
        current.unwrap_or_else(|| {
            let owner = ClientHandle {
                identity: self.identity.clone(),
                project: Arc::clone(project),
                client_id: server.view.client_id,
                agent: Arc::clone(agent),
            };
            let tunnel = Arc::new(LiveTunnel::at_peer(
                owner,
                Arc::clone(&server.view),
                Arc::clone(&self.policy),
                (Arc::clone(&self.health), Arc::clone(&self.meters)),
                server.generation,
            ));
            server.tunnel.store(Some(Arc::clone(&tunnel)));
            tunnel
        })
    }
}

impl RemoteServer {
    /// An engine, by its id, with an agent of a tunnel.
    pub(super) fn new(
        engine: impl Into<Box<str>>,
        view: Arc<Tunnel>,
        generation: Option<u64>,
    ) -> Self {
        Self {
            engine: engine.into(),
            view,
            generation,
            tunnel: ArcSwapOption::empty(),
        }
    }
}
