//! The one owner of everything that is alive: clients, their tunnels, and who watches them.
//!
//! Three kinds of caller meet here and none sees another. Agents' sessions register clients and
//! open tunnels ([`Live::add_client`], [`Live::open_tunnel`]). The edge asks where a hostname
//! leads ([`Live::route`], [`Live::find`]); these two never lock. Watchers subscribe
//! ([`Live::subscribe`]) and get a snapshot and the changes after it, cut at one instant.
//!
//! All changes happen under one short lock, and each is told to the watchers before the lock is
//! released: their order is the order of events. Nothing here does IO, awaits, or knows what an
//! agent is: [`Live`] is generic over the handle through which streams to it are opened.
//!
//! State is in memory only (EN-9): after a restart agents come back and open their tunnels again.

mod change;
mod group;
mod hostnames;
mod limits;
mod names;
mod owner;
mod random;
mod recent_hostnames;
mod shown;
mod view;
mod watch;

pub use change::{Delivery, Frame, WebttyChange};
pub(crate) use change::{PREFIX as SSE_PREFIX, SUFFIX as SSE_SUFFIX};
pub use group::{Health, LoadMetric};
pub use hostnames::{HostnameRefused, Namespace};
pub use limits::LiveLimits;
pub use owner::{Counts, Live, Online};
pub use view::View;
pub(crate) use view::write_array;
pub use watch::{
    AllChanges, Events, Snapshot, Subscription, SubscriptionEnd, TooManyWatchersError,
};

use std::sync::Arc;

use types::id::{ClientId, TunnelId};
use types::tunnel::Tunnel;

use crate::access::TunnelPolicy;
use crate::directory::Project;
use crate::limits::Meters;

/// Whose a client and its tunnels are. Two channels of equal identity may take names from each
/// other; of different identities never.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Id of the project.
    pub project: Arc<str>,
    /// User or application of the credential; a user and an application of the same id differ.
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

/// Who opens a tunnel, and through what its streams will be opened.
#[derive(Debug)]
pub struct Owner<A> {
    pub identity: Identity,
    pub project: Arc<Project>,
    /// A client that was added with [`Live::add_client`].
    pub client_id: ClientId,
    pub agent: Arc<A>,
}

/// A tunnel that is online. Immutable: a change of its view makes a new one.
///
/// The maps that route to it free their entries late, so the last reference may outlive the
/// tunnel by a while: its drop is no signal of the tunnel's end.
#[derive(Debug)]
pub struct LiveTunnel<A> {
    /// What lists and events show.
    pub view: Arc<Tunnel>,
    /// What the edge enforces, compiled when the tunnel was opened.
    pub policy: Arc<TunnelPolicy>,
    pub identity: Identity,
    pub project: Arc<Project>,
    pub agent: Arc<A>,
    /// Whether it could serve the last visitors.
    pub health: Arc<Health>,
    /// What its visitors used lately.
    pub meters: Arc<Meters>,
    /// Place in the order of opening.
    seq: u64,
}

/// A tunnel that was opened, and those that lost their name or hostname to it.
#[derive(Debug)]
pub struct OpenedTunnel<A> {
    pub tunnel: Arc<LiveTunnel<A>>,
    /// Those that held the name, the hostname or the port. Their agents are told `taken_over`.
    pub displaced: Vec<DisplacedTunnel<A>>,
}

/// A tunnel that another channel of the same identity has taken over.
#[derive(Debug)]
pub struct DisplacedTunnel<A> {
    pub client_id: ClientId,
    pub tunnel_id: TunnelId,
    pub agent: Arc<A>,
}

/// Why a tunnel is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenRefused {
    /// Another identity of the project holds the name.
    #[error("the tunnel name is taken")]
    NameTaken,
    /// Another identity holds the hostname.
    #[error("the hostname is taken")]
    HostnameTaken,
    /// Another identity has a tunnel on the reserved port.
    #[error("the port is taken")]
    PortTaken,
    /// This very control channel holds the name, the hostname or the port already.
    #[error("this client has the name or hostname already")]
    AlreadyYours,
    /// The name is shared, and the new tunnel's guards or protocol are not those of the others.
    #[error("the tunnels that share this name have another protocol or other guards")]
    ShareDiffers,
    /// The engine, or this client, has as many tunnels as it may have.
    #[error("no more tunnels can be opened")]
    Full,
    /// The project has as many tunnels online as its plan allows.
    #[error("the project has as many tunnels online as its plan allows: {0}")]
    ProjectFull(u32),
    /// The project has as many tunnels online as one of several may have.
    #[error("the project has as many tunnels online as one project may have here: {0}")]
    ShareFull(usize),
    /// The control channel has ended, or never was.
    #[error("the client is not connected")]
    NotConnected,
}

/// Why no further client is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientsFull {
    /// The engine has as many as it may have.
    #[error("the engine has as many agents as it may have")]
    Engine,
    /// The project has as many as its plan allows.
    #[error("the project has as many agents connected as its plan allows: {0}")]
    Project(u32),
    /// The project has as many as one of several may have.
    #[error("the project has as many agents connected as one project may have here: {0}")]
    Share(usize),
}

/// Where a published hostname leads.
#[derive(Debug)]
pub enum Route<A> {
    Online(Arc<LiveTunnel<A>>),
    /// Seen within the last minutes, but no agent serves it now: 503, not 404.
    Offline,
    Unknown,
}

impl<A> Clone for Owner<A> {
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
