//! The owner: one lock for changes, maps without locks for routing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use types::client::Client;
use types::id::{ClientId, TunnelId};
use types::tunnel::{Hostname, Tunnel, TunnelProperties};

use super::change::Change;
use super::memory::{Order, Remembered};
use super::names::{NameKey, NameRef, routed_hostname};
use super::random::{random_bytes, unix_millis};
use super::shown::{keep_keys, shown};
use super::view::View;
use super::watch::{Snapshot, Subscription, Watchers, WatchersFull};
use super::{ClientsFull, Displaced, LiveLimits, LiveTunnel, OpenRefused, Opened, Owner, Route};
use crate::access::TunnelPolicy;
use crate::clock::Clock;

/// All live state of an engine. Shared by every worker; `A` is how an agent is reached.
#[derive(Debug)]
pub struct Live<A> {
    limits: LiveLimits,
    clock: Arc<dyn Clock>,
    by_hostname: papaya::HashMap<Hostname, Arc<LiveTunnel<A>>>,
    by_name: papaya::HashMap<NameKey, Arc<LiveTunnel<A>>>,
    by_id: papaya::HashMap<TunnelId, Arc<LiveTunnel<A>>>,
    remembered: Remembered,
    state: Mutex<State<A>>,
}

/// What only the holder of the lock sees. Numbers are places in the order of arrival.
#[derive(Debug)]
struct State<A> {
    next: u64,
    clients: BTreeMap<u64, Connected>,
    places: HashMap<ClientId, u64>,
    tunnels: BTreeMap<u64, Arc<LiveTunnel<A>>>,
    forgetting: Order,
    watchers: Watchers,
}

#[derive(Debug)]
struct Connected {
    view: Arc<Client>,
    tunnels: BTreeSet<u64>,
}

impl<A: Send + Sync + 'static> Live<A> {
    pub fn new(limits: LiveLimits, clock: Arc<dyn Clock>) -> Arc<Self> {
        let remembered = Remembered::new(limits.remembered_hostnames, limits.hostname_memory);
        let watchers = Watchers::new(limits.watchers, limits.watcher_queue);
        Arc::new(Self {
            limits,
            clock,
            by_hostname: papaya::HashMap::new(),
            by_name: papaya::HashMap::new(),
            by_id: papaya::HashMap::new(),
            remembered,
            state: Mutex::new(State {
                next: 0,
                clients: BTreeMap::new(),
                places: HashMap::new(),
                tunnels: BTreeMap::new(),
                forgetting: Order::default(),
                watchers,
            }),
        })
    }

    /// A fresh id for a control channel.
    pub fn new_client_id(&self) -> ClientId {
        ClientId::new(unix_millis(self.clock.now()), random_bytes())
    }

    /// Registers a control channel: `client.created`. Its id comes from [`Live::new_client_id`].
    ///
    /// # Errors
    /// [`ClientsFull`] at [`LiveLimits::clients`].
    pub fn add_client(&self, client: Client) -> Result<Arc<Client>, ClientsFull> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        if state.clients.len() >= self.limits.clients {
            return Err(ClientsFull);
        }
        let view = Arc::new(client);
        let place = state.take_place();
        state.places.insert(view.id, place);
        let connected = Connected {
            view: Arc::clone(&view),
            tunnels: BTreeSet::new(),
        };
        state.clients.insert(place, connected);
        state
            .watchers
            .publish(&Change::client(now, None, Some(&view)));
        Ok(view)
    }

    /// Takes a control channel away with its tunnels: `tunnel.deleted` for each, oldest first,
    /// then `client.deleted`. Streams that were accepted live on; that is their owner's matter.
    pub fn remove_client(&self, id: &ClientId) -> Vec<Arc<LiveTunnel<A>>> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let Some(client) = state
            .places
            .remove(id)
            .and_then(|place| state.clients.remove(&place))
        else {
            return Vec::new();
        };
        let closed: Vec<_> = client
            .tunnels
            .iter()
            .filter_map(|place| state.tunnels.remove(place))
            .collect();
        for tunnel in &closed {
            self.unroute(&mut state, tunnel, now);
            state
                .watchers
                .publish(&Change::tunnel(now, Some(&tunnel.view), None));
        }
        state
            .watchers
            .publish(&Change::client(now, Some(&client.view), None));
        closed
    }

    /// Changes what is shown of a client: `client.updated`. Its id stays. Returns the new view.
    pub fn update_client(
        &self,
        id: &ClientId,
        change: impl FnOnce(&mut Client),
    ) -> Option<Arc<Client>> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let State {
            places,
            clients,
            watchers,
            ..
        } = &mut *state;
        let connected = clients.get_mut(places.get(id)?)?;
        let mut view = Client::clone(&connected.view);
        change(&mut view);
        view.id = *id;
        let old = std::mem::replace(&mut connected.view, Arc::new(view));
        watchers.publish(&Change::client(now, Some(&old), Some(&connected.view)));
        Some(Arc::clone(&connected.view))
    }

    /// Opens a tunnel: `tunnel.created`, after `tunnel.deleted` for each tunnel that it displaces.
    ///
    /// `properties` are resolved: the hostname is whole ([`super::Namespace`]), defaults are in.
    /// Names and hostnames follow the identity: the same channel asking twice is refused, another
    /// channel of the same identity takes over at once, another identity is refused.
    pub fn open_tunnel(
        &self,
        owner: Owner<A>,
        properties: TunnelProperties,
        policy: TunnelPolicy,
    ) -> Result<Opened<A>, OpenRefused> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let id = TunnelId::new(unix_millis(now), random_bytes());
        let place = *state
            .places
            .get(&owner.client_id)
            .ok_or(OpenRefused::NotConnected)?;
        let displaced = self.holders(&owner, &properties)?;
        let client = state.clients.get(&place).ok_or(OpenRefused::NotConnected)?;
        // Displaced tunnels are of other channels: they make room in the whole, not in this one.
        if state.tunnels.len() - displaced.len() >= self.limits.tunnels
            || client.tunnels.len() >= self.limits.tunnels_per_client
        {
            return Err(OpenRefused::Full);
        }
        let view = Arc::new(shown(id, &owner, &client.view, properties, now));
        let seq = state.take_place();
        let tunnel = Arc::new(LiveTunnel {
            view,
            policy: Arc::new(policy),
            identity: owner.identity,
            agent: owner.agent,
            seq,
        });
        // The new one is routed before the old ones are not: a visitor never falls between.
        self.route_to(&mut state, &tunnel);
        for old in &displaced {
            state.tunnels.remove(&old.seq);
            state.with_client(&old.view.client_id, |client| {
                client.tunnels.remove(&old.seq)
            });
            self.unroute(&mut state, old, now);
            state
                .watchers
                .publish(&Change::tunnel(now, Some(&old.view), None));
        }
        state.tunnels.insert(seq, Arc::clone(&tunnel));
        state.with_client(&owner.client_id, |client| client.tunnels.insert(seq));
        state
            .watchers
            .publish(&Change::tunnel(now, None, Some(&tunnel.view)));
        let displaced = displaced.iter().map(|old| Displaced::of(old)).collect();
        Ok(Opened { tunnel, displaced })
    }

    /// Closes a tunnel of a client: `tunnel.deleted`. `None` where the client has no such tunnel.
    pub fn close_tunnel(&self, client: &ClientId, tunnel: &TunnelId) -> Option<Arc<LiveTunnel<A>>> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let seq = self
            .by_id
            .pin()
            .get(tunnel)
            .filter(|t| t.view.client_id == *client)?
            .seq;
        let closed = state.tunnels.remove(&seq)?;
        state.with_client(client, |client| client.tunnels.remove(&seq));
        self.unroute(&mut state, &closed, now);
        state
            .watchers
            .publish(&Change::tunnel(now, Some(&closed.view), None));
        Some(closed)
    }

    /// Changes what is shown of a tunnel: `tunnel.updated`. What it is found by (id, client, name,
    /// hostname, publication, protocol) stays. Returns the tunnel as it is now.
    pub fn update_tunnel(
        &self,
        client: &ClientId,
        tunnel: &TunnelId,
        change: impl FnOnce(&mut Tunnel),
    ) -> Option<Arc<LiveTunnel<A>>> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let seq = self
            .by_id
            .pin()
            .get(tunnel)
            .filter(|t| t.view.client_id == *client)?
            .seq;
        let old = Arc::clone(state.tunnels.get(&seq)?);
        let mut view = Tunnel::clone(&old.view);
        change(&mut view);
        keep_keys(&mut view, &old.view);
        let new = Arc::new(LiveTunnel {
            view: Arc::new(view),
            policy: Arc::clone(&old.policy),
            identity: old.identity.clone(),
            agent: Arc::clone(&old.agent),
            seq,
        });
        self.route_to(&mut state, &new);
        state.tunnels.insert(seq, Arc::clone(&new));
        state
            .watchers
            .publish(&Change::tunnel(now, Some(&old.view), Some(&new.view)));
        Some(new)
    }

    /// Where a hostname leads. `hostname` is in lower case, without port and trailing dot.
    pub fn route(&self, hostname: &str) -> Route<A> {
        if let Some(tunnel) = self.by_hostname.pin().get(hostname) {
            Route::Online(Arc::clone(tunnel))
        } else if self.remembered.holds(hostname, self.clock.now()) {
            Route::Offline
        } else {
            Route::Unknown
        }
    }

    /// The tunnel that a dialler means, by id or by name, within a project.
    pub fn find(&self, project: &str, id_or_name: &str) -> Option<Arc<LiveTunnel<A>>> {
        let found = if let Ok(id) = id_or_name.parse::<TunnelId>() {
            self.by_id.pin().get(&id).map(Arc::clone)
        } else {
            let key = NameRef {
                project,
                name: id_or_name,
            };
            self.by_name.pin().get(&key).map(Arc::clone)
        };
        found.filter(|tunnel| &*tunnel.identity.project == project)
    }

    /// Whether a tunnel is online.
    pub fn is_online(&self, tunnel: &TunnelId) -> bool {
        self.by_id.pin().contains_key(tunnel)
    }

    /// Whether a hostname is held or remembered, and so not to be drawn for somebody else.
    pub fn is_spoken_for(&self, hostname: &Hostname) -> bool {
        !matches!(self.route(hostname.as_str()), Route::Unknown)
    }

    /// Takes a snapshot and the changes after it, both as `view` shows them, at one instant (EN-3).
    ///
    /// # Errors
    /// [`WatchersFull`] at [`LiveLimits::watchers`].
    pub fn subscribe(&self, view: View) -> Result<Subscription, WatchersFull> {
        let view = Arc::new(view);
        let mut state = self.state.lock();
        let events = state.watchers.add(Arc::clone(&view))?;
        let at = self.clock.now();
        let (clients, tunnels) = state.everything();
        drop(state);
        // What was cut is immutable, so filtering it may take its time outside the lock.
        let snapshot = Snapshot {
            at,
            clients: clients
                .into_iter()
                .filter(|client| view.shows_client(client))
                .collect(),
            tunnels: tunnels
                .into_iter()
                .filter(|tunnel| view.shows_tunnel(tunnel))
                .collect(),
        };
        Ok(Subscription {
            snapshot,
            events,
            view,
        })
    }

    /// The clients that `view` shows, oldest first, at most `limit`.
    pub fn clients(&self, view: &View, limit: usize) -> Vec<Arc<Client>> {
        let clients = self.state.lock().everyone();
        clients
            .into_iter()
            .filter(|client| view.shows_client(client))
            .take(limit)
            .collect()
    }

    /// The tunnels that `view` shows, oldest first, at most `limit`.
    pub fn tunnels(&self, view: &View, limit: usize) -> Vec<Arc<Tunnel>> {
        let tunnels = self.state.lock().everything_open();
        tunnels
            .into_iter()
            .filter(|tunnel| view.shows_tunnel(tunnel))
            .take(limit)
            .collect()
    }

    /// How many clients, tunnels and watchers there are; for metrics.
    pub fn counts(&self) -> Counts {
        let mut state = self.state.lock();
        Counts {
            clients: state.clients.len(),
            tunnels: state.tunnels.len(),
            watchers: state.watchers.count(),
            dropped_watchers: state.watchers.dropped(),
        }
    }

    /// Ends every subscription with a reason, and those that begin later at once: the engine is
    /// going away.
    pub fn end_subscriptions(&self) {
        self.state.lock().watchers.stop();
    }

    /// The tunnels that give way to a new one.
    fn holders(
        &self,
        owner: &Owner<A>,
        properties: &TunnelProperties,
    ) -> Result<Vec<Arc<LiveTunnel<A>>>, OpenRefused> {
        let mut displaced: Vec<Arc<LiveTunnel<A>>> = Vec::new();
        let by_name = properties.name.as_ref().and_then(|name| {
            let key = NameRef {
                project: &owner.identity.project,
                name: name.as_str(),
            };
            self.by_name.pin().get(&key).map(Arc::clone)
        });
        let by_hostname = routed_hostname(properties)
            .and_then(|hostname| self.by_hostname.pin().get(hostname).map(Arc::clone));
        let taken = [
            (by_name, OpenRefused::NameTaken),
            (by_hostname, OpenRefused::HostnameTaken),
        ];
        for (holder, refusal) in taken {
            let Some(holder) = holder else { continue };
            if holder.view.client_id == owner.client_id {
                return Err(OpenRefused::AlreadyYours);
            }
            if holder.identity != owner.identity {
                return Err(refusal);
            }
            if displaced.iter().all(|other| other.seq != holder.seq) {
                displaced.push(holder);
            }
        }
        Ok(displaced)
    }

    fn route_to(&self, state: &mut State<A>, tunnel: &Arc<LiveTunnel<A>>) {
        self.by_id.pin().insert(tunnel.view.id, Arc::clone(tunnel));
        if let Some(key) = NameKey::of(tunnel) {
            self.by_name.pin().insert(key, Arc::clone(tunnel));
        }
        if let Some(hostname) = routed_hostname(&tunnel.view.properties) {
            self.by_hostname
                .pin()
                .insert(hostname.clone(), Arc::clone(tunnel));
            self.remembered
                .forget(&mut state.forgetting, hostname.as_str());
        }
    }

    /// Takes a tunnel out of the maps, where it still is what they lead to.
    fn unroute(&self, state: &mut State<A>, tunnel: &LiveTunnel<A>, now: Timestamp) {
        self.by_id.pin().remove(&tunnel.view.id);
        if let Some(key) = NameKey::of(tunnel) {
            let names = self.by_name.pin();
            if names
                .get(&key)
                .is_some_and(|holder| holder.seq == tunnel.seq)
            {
                names.remove(&key);
            }
        }
        if let Some(hostname) = routed_hostname(&tunnel.view.properties) {
            let hostnames = self.by_hostname.pin();
            if hostnames
                .get(hostname)
                .is_some_and(|holder| holder.seq == tunnel.seq)
            {
                // Remembered first: between the two a visitor must not read "unknown".
                self.remembered
                    .note(&mut state.forgetting, hostname.as_str(), now);
                hostnames.remove(hostname);
            }
        }
    }
}

/// How much is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub clients: usize,
    pub tunnels: usize,
    pub watchers: usize,
    /// Watchers closed as too slow since the start.
    pub dropped_watchers: u64,
}

impl<A> State<A> {
    fn take_place(&mut self) -> u64 {
        let place = self.next;
        self.next += 1;
        place
    }

    fn with_client<T>(
        &mut self,
        id: &ClientId,
        act: impl FnOnce(&mut Connected) -> T,
    ) -> Option<T> {
        let place = self.places.get(id)?;
        self.clients.get_mut(place).map(act)
    }

    fn everyone(&self) -> Vec<Arc<Client>> {
        self.clients
            .values()
            .map(|client| Arc::clone(&client.view))
            .collect()
    }

    fn everything_open(&self) -> Vec<Arc<Tunnel>> {
        self.tunnels
            .values()
            .map(|tunnel| Arc::clone(&tunnel.view))
            .collect()
    }

    fn everything(&self) -> (Vec<Arc<Client>>, Vec<Arc<Tunnel>>) {
        (self.everyone(), self.everything_open())
    }
}

impl<A> Displaced<A> {
    fn of(tunnel: &LiveTunnel<A>) -> Self {
        Self {
            client_id: tunnel.view.client_id,
            tunnel_id: tunnel.view.id,
            agent: Arc::clone(&tunnel.agent),
        }
    }
}
