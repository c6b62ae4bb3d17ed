//! The directory of an engine whose cluster has a store: it follows the membership's copy of all
//! names.
//!
//! Entries are read when the first visitor of a tunnel arrives, and kept until the name changes. A
//! request never waits for the store. It takes no lock either, except for the first one, and for names
//! without a tunnel, which are looked up in the membership's copy.

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
        let read = Arc::new(read_tunnel(hostname, servers, (own, &*self.zone))?);
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

#[cfg(test)]
mod tests {
    use ownership::{Engine, Entry, EntryValue, Generation, Owner};
    use types::id::{ClientId, TunnelId};
    use types::tunnel::{Protocol, Tunnel, TunnelProperties};

    use super::*;
    use crate::directory::Project;
    use crate::live::{ClientHandle, Identity, LiveTunnel};

    const HOST: &str = "web.t.engine.example";
    const OWN: EngineId = EngineId(0);

    /// The hold of an engine, whose entry requires a token or not.
    fn server(number: u8, zone: &str, generation: u64, token_auth: bool) -> Server {
        let properties = TunnelProperties {
            hostname: Some(HOST.parse().unwrap()),
            protocol: Some(Protocol::Http),
            token_auth: Some(token_auth),
            ..TunnelProperties::default()
        };
        let client_id = ClientId::new(1, [number; 10]);
        let policy = TunnelPolicy::compile(&properties);
        let id = TunnelId::new(1, [number; 10]);
        let mut view = Tunnel::online(id, client_id, properties);
        view.project_id = Some("prj_1".to_owned());
        let user = credentials::Identity::User("usr_1".to_owned());
        let owner = ClientHandle {
            identity: Identity::new("prj_1", &user),
            project: Arc::new(Project::community()),
            client_id,
            agent: Arc::new(()),
        };
        let recent = (Arc::default(), Arc::default());
        let tunnel = LiveTunnel::at_peer(owner, Arc::new(view), Arc::new(policy), recent, None);
        Server {
            id: EngineId(number.into()),
            engine: Engine {
                name: format!("engine-{number}").into(),
                address: format!("engine-{number}:7443").into(),
                zone: zone.into(),
            },
            owner: Owner::new("prj_1/user/usr_1"),
            generation: Generation(generation),
            entry: entry::encode(&tunnel).map(|value| Entry {
                revision: Generation(generation),
                value: EntryValue::new(value),
            }),
        }
    }

    fn engines(servers: Vec<Server>, zone: &str) -> Option<Vec<String>> {
        let read = read_tunnel(HOST, servers, (OWN, zone))?;
        let engines = read.servers.iter();
        Some(engines.map(|server| server.engine.to_string()).collect())
    }

    #[test]
    fn only_entries_of_other_engines_are_used() {
        assert_eq!(engines(vec![server(0, "", 1, false)], ""), None);
        let bare = Server {
            entry: None,
            ..server(1, "", 1, false)
        };
        assert_eq!(engines(vec![bare.clone()], ""), None);
        let both = engines(vec![bare, server(2, "", 2, false)], "");
        assert_eq!(both, Some(vec!["engine-2".to_owned()]));
    }

    #[test]
    fn engines_of_the_same_zone_are_preferred_and_then_newer_ones() {
        let servers = || {
            vec![
                server(1, "a", 1, false),
                server(2, "b", 2, false),
                server(3, "a", 3, false),
            ]
        };
        for (zone, expected) in [("a", [3, 1, 2]), ("b", [2, 3, 1]), ("", [3, 2, 1])] {
            let expected = expected.map(|number| format!("engine-{number}"));
            assert_eq!(engines(servers(), zone).unwrap(), expected, "{zone:?}");
        }
    }

    /// The owner has opened the tunnel again with other rules, and the other engine has not closed
    /// its tunnel yet.
    #[test]
    fn the_newest_hold_decides_about_the_access_rules() {
        let servers = vec![server(1, "a", 1, false), server(2, "b", 2, true)];
        let read = read_tunnel(HOST, servers, (OWN, "a")).unwrap();
        assert_eq!(read.view().properties.token_auth, Some(true));
        let engines: Vec<_> = read.servers.iter().map(|server| &*server.engine).collect();
        assert_eq!(engines, ["engine-2"]);
    }
}
