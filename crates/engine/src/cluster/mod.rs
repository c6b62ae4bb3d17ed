//! The other engines of a cluster.
//!
//! A visitor may reach any engine. If the agent of the tunnel is connected to another one, this
//! engine makes the access decision, once, and forwards the stream: over standing connections and
//! lanes, as towards an agent ([`dial`]). The other engine connects the stream to the agent
//! ([`accept`], [`inbound`], [`relay`]). It forwards no stream again, because it only looks among its
//! own tunnels.
//!
//! [`Cluster`] is the state of both sides. The names of other engines come from a
//! [`ClusterDirectory`], which answers from memory: [`StoreDirectory`], from the store of the cluster.

mod accept;
mod control;
mod dial;
mod directory;
mod inbound;
mod member;
mod names;
mod peers;
mod relay;
mod store_directory;
mod tls;

pub(crate) use self::accept::serve as serve_peer;
pub(crate) use self::dial::keep_connected;
pub use self::directory::{ClusterDirectory, PeerAddress, RemoteTunnel};
pub use self::member::{ClusterError, ClusterMember};
pub(crate) use self::names::has_name;
pub use self::names::{cluster_domain, engine_name};
pub(crate) use self::peers::Cluster;
pub(crate) use self::store_directory::StoreDirectory;
pub use self::tls::ClusterFiles;
pub use wire::cluster::is_label;
