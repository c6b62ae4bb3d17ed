//! The single owner of all live state: clients, their tunnels, and their watchers.
//!
//! It has three kinds of callers, which do not depend on each other. Agents' sessions register
//! clients and open tunnels ([`TunnelRegistry::add_client`], [`TunnelRegistry::open_tunnel`]). The
//! edge looks up host names ([`TunnelRegistry::route`], [`TunnelRegistry::find`]); these two never
//! lock. Watchers subscribe ([`TunnelRegistry::subscribe`]) and get a snapshot and the changes
//! after it, both from the same instant.
//!
//! All changes happen under one lock, and each is sent to the watchers before the lock is
//! released, so events have the order of the changes. Nothing here does IO or awaits. The code is
//! independent of agents: [`TunnelRegistry`] is generic over the handle that opens streams to them.
//!
//! State is only in memory (EN-9): after a restart agents reconnect and open their tunnels again.

mod change;
mod counts;
mod group;
mod hostnames;
mod limits;
mod names;
mod owner;
mod recent_hostnames;
mod tunnel_view;
mod view;
mod watch;

pub use change::{Delivery, Frame, WebttyChange};
pub(crate) use change::{PREFIX as SSE_PREFIX, SUFFIX as SSE_SUFFIX};
pub use counts::{Counts, Online};
pub use group::{Health, LoadMetric};
pub use hostnames::{HostnameError, Namespace, PublishedName, Requester};
pub use limits::LiveLimits;
pub(crate) use names::routed_hostname;
pub use owner::TunnelRegistry;
pub use view::View;
pub(crate) use view::write_array;
pub use watch::{
    AllChanges, Events, Snapshot, Subscription, SubscriptionEnd, TooManyWatchersError,
};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use types::id::{ClientId, TunnelId};
use types::tunnel::Tunnel;

use crate::access::TunnelPolicy;
use crate::directory::Project;
use crate::limits::Meters;

/// Owner of a client and its tunnels. Control channels of one identity may take over each other's
/// names; those of different identities may not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Id of the project.
    pub project: Arc<str>,
    /// User or application of the credential. A user never equals an application, even with one id.
    pub subject: credentials::Identity,
}

impl Identity {
    pub fn new(project: &str, subject: &credentials::Identity) -> Self {
        Self {
            project: project.into(),
            subject: subject.clone(),
        }
    }
}

/// The client that opens a tunnel, and the handle for opening its streams.
#[derive(Debug)]
pub struct ClientHandle<A> {
    pub identity: Identity,
    pub project: Arc<Project>,
    /// A client that was added with [`TunnelRegistry::add_client`].
    pub client_id: ClientId,
    pub agent: Arc<A>,
}

/// A tunnel that is online. Immutable: a change of its view creates a new value.
///
/// The maps that route to it free their entries late, so the last reference may outlive the tunnel
/// for a while. Dropping the last reference therefore does not mark the end of the tunnel.
#[derive(Debug)]
pub struct LiveTunnel<A> {
    /// The object in lists and events.
    pub view: Arc<Tunnel>,
    /// The access rules at the edge, compiled when the tunnel was opened.
    pub policy: Arc<TunnelPolicy>,
    pub identity: Identity,
    pub project: Arc<Project>,
    pub agent: Arc<A>,
    /// Recent failures to serve visitors.
    pub health: Arc<Health>,
    /// Recent usage by its visitors.
    pub meters: Arc<Meters>,
    /// True once a caller of the Engine API has closed it: its visits end.
    closed_by_caller: Arc<AtomicBool>,
    /// Generation of the ownership of its name, if its agent is at another engine of the cluster and
    /// the generation is known.
    pub generation: Option<u64>,
    /// Position in the order of opening.
    seq: u64,
}

impl<A> LiveTunnel<A> {
    /// A tunnel whose agent is at another engine, which is not in the lists of [`TunnelRegistry`]. `recent` is
    /// what this engine knows of its recent visitors.
    pub(crate) fn at_peer(
        owner: ClientHandle<A>,
        view: Arc<Tunnel>,
        policy: Arc<TunnelPolicy>,
        recent: (Arc<Health>, Arc<Meters>),
        generation: Option<u64>,
    ) -> Self {
        let (health, meters) = recent;
        Self {
            view,
            policy,
            identity: owner.identity,
            project: owner.project,
            agent: owner.agent,
            health,
            meters,
            closed_by_caller: Arc::default(),
            generation,
            seq: u64::MAX,
        }
    }

    /// Returns true if a caller of the Engine API has closed the tunnel.
    pub fn is_closed_by_caller(&self) -> bool {
        self.closed_by_caller.load(Ordering::Acquire)
    }

    /// The host name by which visitors reach the tunnel, in lower case; `None` for a private tunnel
    /// and for a TCP tunnel.
    pub fn routed_hostname(&self) -> Option<&str> {
        names::routed_hostname(&self.view.properties).map(types::tunnel::Hostname::as_str)
    }
}

/// A tunnel that was opened, and the tunnels that lost their name or host name to it.
#[derive(Debug)]
pub struct OpenedTunnel<A> {
    pub tunnel: Arc<LiveTunnel<A>>,
    /// The previous holders of the name, the host name or the port. Their agents receive
    /// `taken_over`.
    pub displaced: Vec<DisplacedTunnel<A>>,
}

/// A tunnel that another channel of the same identity has taken over.
#[derive(Debug)]
pub struct DisplacedTunnel<A> {
    pub client_id: ClientId,
    pub tunnel_id: TunnelId,
    pub agent: Arc<A>,
}

/// Reasons why a tunnel cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenTunnelError {
    /// Another identity of the project has the name.
    #[error("the tunnel name is taken")]
    NameTaken,
    /// Another identity has the host name.
    #[error("the hostname is taken")]
    HostnameTaken,
    /// Another identity has a tunnel on the reserved port.
    #[error("the port is taken")]
    PortTaken,
    /// The same control channel already has the name, the host name or the port.
    #[error("this client has the name or hostname already")]
    AlreadyHeld,
    /// The name is shared, and the new tunnel's access rules or protocol differ from those of the
    /// other holders.
    #[error("the tunnels with this name have another protocol or other guards")]
    GroupMismatch,
    /// The engine, or this client, has reached its limit of tunnels.
    #[error("no more tunnels can be opened")]
    Full,
    /// The project has as many tunnels online as its plan allows.
    #[error("the project has reached its plan's limit of online tunnels: {0}")]
    PlanFull(u32),
    /// The project has used up its share of the engine's tunnels, which several projects use.
    #[error("the project has reached the limit of online tunnels for one project: {0}")]
    ProjectShareFull(usize),
    /// The control channel has ended, or never existed.
    #[error("the client is not connected")]
    NotConnected,
}

/// Reasons why no further client is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientLimitError {
    /// The engine has reached its limit.
    #[error("the engine has reached its limit of agents")]
    Engine,
    /// The project has reached the limit of its plan.
    #[error("the project has reached its plan's limit of connected agents: {0}")]
    Plan(u32),
    /// The project has used up its share of the engine's clients, which several projects use.
    #[error("the project has reached the limit of connected agents for one project: {0}")]
    ProjectShare(usize),
}

/// Destination of a published host name.
#[derive(Debug)]
pub enum Route<A> {
    Online(Arc<LiveTunnel<A>>),
    /// Online within the last minutes, but no agent serves it now: 503, not 404.
    Offline,
    Unknown,
}

impl<A> Clone for ClientHandle<A> {
    fn clone(&self) -> Self {
        Self {
            identity: self.identity.clone(),
            project: Arc::clone(&self.project),
            client_id: self.client_id,
            agent: Arc::clone(&self.agent),
        }
    }
}

#[cfg(test)]
mod tests;
