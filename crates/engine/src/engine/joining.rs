//! The start and the end of an engine's membership in its cluster: the ownership of names, and the
//! connections to the other engines.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use crate::cluster::{self, Cluster, ClusterFiles, ClusterMember, StoreDirectory};
use crate::config::ClusterConfig;
use crate::core::Core;
use crate::listen::keep_peer_ports;
use crate::membership;
use crate::metrics::{self, REFRESH};
use crate::start_error::StartError;

/// The parts of an engine that belong to its cluster; all are absent in an engine that is alone.
#[derive(Default)]
pub(super) struct ClusterParts {
    /// Ownership of names.
    pub(super) membership: Option<Arc<etcd::Cluster>>,
    /// The names of other engines, as the membership reads them.
    pub(super) directory: Option<Arc<StoreDirectory>>,
    /// The other engines.
    pub(super) cluster: Option<Arc<Cluster>>,
}

impl ClusterParts {
    /// Starts to join the cluster of the configuration. `member` stands for it in tests of the
    /// connections between engines, which have no store. `listener` is the bound address of the
    /// listener for other engines.
    ///
    /// # Errors
    /// A file of the configuration cannot be used.
    pub(super) fn open(
        config: Option<&ClusterConfig>,
        member: Option<ClusterMember>,
        listener: Option<SocketAddr>,
    ) -> Result<Self, StartError> {
        if let Some(member) = member {
            return Ok(Self {
                cluster: Some(Cluster::new(member)?),
                ..Self::default()
            });
        }
        let Some(config) = config else {
            return Ok(Self::default());
        };
        let membership = membership::start(config, listener.unwrap_or(config.listen))?;
        let directory = StoreDirectory::new(&membership, &config.engine, config.zone.as_deref());
        let cluster = Cluster::new(ClusterMember {
            cluster: config.name.clone(),
            engine: config.engine.clone(),
            listen: config.listen,
            files: ClusterFiles {
                authority: config.ca_file.clone(),
                certificate: config.cert_file.clone(),
                key: config.key_file.clone(),
            },
            directory: Arc::<StoreDirectory>::clone(&directory),
        })?;
        Ok(Self {
            membership: Some(membership),
            directory: Some(directory),
            cluster: Some(cluster),
        })
    }
}

/// Waits until the engine has joined its cluster, so that the first agents are not refused. An
/// engine whose store is unreachable starts nevertheless, and joins later.
///
/// The membership ends after the agents, whose names it holds for their owners.
pub(super) async fn join(core: &Arc<Core>, directory: Option<Arc<StoreDirectory>>) {
    let Some(membership) = core.membership.clone() else {
        return;
    };
    if let Some(directory) = directory {
        // Visitors are forwarded until the agents are disconnected.
        let following = directory.follow(core.agents_stop.clone());
        core.agents.spawn(following);
    }
    let joined = tokio::time::timeout(JOIN_TIME, membership.wait_until_serving()).await;
    if joined.is_err() {
        let reason = membership.status().failure;
        let reason = reason.unwrap_or_else(|| "the store has not answered yet".to_owned());
        warn!(reason, "the engine has not joined its cluster yet");
    }
    let (agents, stop) = (core.agents.clone(), core.agents_stop.clone());
    // The stop of the engine waits for this task last.
    core.routed.spawn(async move {
        let mut refresh = tokio::time::interval(REFRESH);
        while stop.run_until_cancelled(refresh.tick()).await.is_some() {
            metrics::cluster(&membership.status());
        }
        tokio::time::timeout(FAREWELL, agents.wait()).await.ok();
        membership.stop().await;
    });
}

/// Connects to the other engines of the cluster, and listens on the ports of their TCP tunnels.
pub(super) fn connect(core: &Arc<Core>) {
    if let Some(cluster) = &core.cluster {
        let (of_peers, of_ports) = (Arc::clone(cluster), Arc::clone(cluster));
        let keeping = cluster::keep_connected(Arc::clone(core), of_peers);
        core.agents.spawn(keeping);
        tokio::spawn(keep_peer_ports(Arc::clone(core), of_ports));
    }
}

/// The store answers within milliseconds, and elects a leader within seconds.
const JOIN_TIME: Duration = Duration::from_secs(3);

/// Time limit for the last messages of agents, as for the stop of the engine.
const FAREWELL: Duration = Duration::from_secs(2);
