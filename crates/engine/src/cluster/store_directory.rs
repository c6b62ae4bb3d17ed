//! The directory of an engine whose cluster has a store: it follows the membership's copy of all
//! names.
//!
//! Entries are read when the first visitor of a tunnel arrives, and kept until the name changes, so
//! a request neither waits for the store nor takes a lock.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use etcd::{ChangedNames, Cluster as Membership};
use ownership::{EngineId, Name, Server};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::directory::{ClusterDirectory, PeerAddress, RemoteServer, RemoteTunnel};
use crate::access::TunnelPolicy;
use crate::membership::entry;

/// The directory.
pub(crate) struct StoreDirectory {
    membership: Arc<Membership>,
    /// Name and zone of this engine; an empty zone if it has none.
    engine: Box<str>,
    zone: Box<str>,
    /// Tunnels with visitors, by their host names.
    tunnels: papaya::HashMap<Box<str>, Arc<RemoteTunnel>>,
    peers: watch::Sender<Arc<[PeerAddress]>>,
    ports: watch::Sender<Arc<[Arc<RemoteTunnel>]>>,
}

impl StoreDirectory {
    /// The directory of an engine. [`StoreDirectory::follow`] keeps it current.
    pub(crate) fn new(membership: &Arc<Membership>, engine: &str, zone: Option<&str>) -> Arc<Self> {
        Arc::new(Self {
            membership: Arc::clone(membership),
            engine: engine.into(),
            zone: zone.unwrap_or_default().into(),
            tunnels: papaya::HashMap::new(),
            peers: watch::Sender::new(Arc::from([])),
            ports: watch::Sender::new(Arc::from([])),
        })
    }

    /// Applies the changes of the store until `stop`.
    pub(crate) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut contacts = self.membership.contacts();
        loop {
            contacts.borrow_and_update();
            self.update();
            tokio::select! {
                contact = contacts.changed() => if contact.is_err() {
                    return;
                },
                () = stop.cancelled() => return,
            }
        }
    }

    fn update(&self) {
        let tunnels = self.tunnels.pin();
        match self.membership.take_changes() {
            ChangedNames::All => tunnels.clear(),
            ChangedNames::Some(names) => {
                for hostname in names.iter().filter_map(Name::hostname) {
                    tunnels.remove(hostname);
                }
            }
        }
        let peers = self.listed_peers();
        self.peers.send_if_modified(|known| {
            let is_changed = **known != *peers;
            if is_changed {
                *known = peers;
            }
            is_changed
        });
    }

    /// The other engines by their names. While an engine is replaced by a new process, two processes
    /// have its name, and usually its address.
    fn listed_peers(&self) -> Arc<[PeerAddress]> {
        let mut engines = self.membership.engines();
        engines.sort_by_key(|(id, _)| *id);
        let others = engines
            .into_iter()
            .filter(|(_, engine)| *engine.name != *self.engine);
        let peers: BTreeMap<Arc<str>, PeerAddress> = others
            .map(|(_, engine)| {
                let zone = Some(&engine.zone).filter(|zone| !zone.is_empty());
                let peer = PeerAddress {
                    engine: engine.name.to_string(),
                    address: engine.address.to_string(),
                    zone: zone.map(ToString::to_string),
                };
                (engine.name, peer)
            })
            .collect();
        peers.into_values().collect()
    }

    /// Reads a tunnel and keeps it. The view does not change meanwhile.
    fn keep(&self, hostname: &str, servers: Vec<Server>) -> Option<Arc<RemoteTunnel>> {
        let tunnels = self.tunnels.pin();
        if let Some(known) = tunnels.get(hostname) {
            return Some(Arc::clone(known));
        }
        let own = self.membership.engine_id();
        let read = Arc::new(read_tunnel(hostname, servers, (own, &self.zone))?);
        if tunnels.len() >= MAX_TUNNELS {
            tunnels.clear();
        }
        tunnels.insert(hostname.into(), Arc::clone(&read));
        Some(read)
    }
}

/// A tunnel from the entries of its engines, other than this one. If the entries differ, the newest
/// hold decides.
fn read_tunnel(
    hostname: &str,
    servers: Vec<Server>,
    (own, zone): (EngineId, &str),
) -> Option<RemoteTunnel> {
    let others = servers.into_iter().filter(|server| server.id != own);
    let mut read: Vec<_> = others
        .filter_map(|server| match entry::decode(hostname, &server) {
            Ok(read) => {
                let policy = TunnelPolicy::compile(&read.view.properties)
                    .with_link_passwords(read.link_passwords);
                Some((server, read.view, read.identity, policy))
            }
            Err(error) => {
                let engine = &*server.engine.name;
                debug!(hostname, engine, %error, "an entry of another engine is not used");
                None
            }
        })
        .collect();
    read.sort_by_key(|(server, ..)| Reverse(server.generation));
    let (_, view, identity, policy) = read.first()?;
    let (newest, identity, policy) = (Arc::clone(view), identity.clone(), policy.clone());
    read.retain(|(_, _, owner, rules)| *owner == identity && *rules == policy);
    // The sort is stable: newer ones stay first within a zone.
    read.sort_by_key(|(server, ..)| zone.is_empty() || *server.engine.zone != *zone);
    let servers = read.into_iter().map(|(server, view, ..)| {
        RemoteServer::new(&*server.engine.name, view, Some(server.generation.0))
    });
    let servers = servers.collect();
    Some(RemoteTunnel::of_servers(
        (newest, identity),
        policy,
        servers,
    ))
}

impl ClusterDirectory for StoreDirectory {
    fn servers(&self, hostname: &str) -> Option<Arc<RemoteTunnel>> {
        if let Some(known) = self.tunnels.pin().get(hostname) {
            return Some(Arc::clone(known));
        }
        let name = Name::of_host(hostname);
        let read = |servers| self.keep(hostname, servers);
        self.membership.read_servers(&name, read)
    }

    fn is_held(&self, hostname: &str) -> bool {
        self.membership.is_held(&Name::of_host(hostname))
    }

    fn peers(&self) -> watch::Receiver<Arc<[PeerAddress]>> {
        self.peers.subscribe()
    }

    /// TCP tunnels have no name in the store, so other engines do not listen on their ports.
    fn ports(&self) -> watch::Receiver<Arc<[Arc<RemoteTunnel>]>> {
        self.ports.subscribe()
    }
}

impl fmt::Debug for StoreDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreDirectory")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

/// Tunnels that are kept. A tunnel that is read again costs some microseconds, and forgets the recent
/// usage that this engine has seen.
const MAX_TUNNELS: usize = 16_384;
