//! The owner of the live state: one lock for changes, lock-free maps for routing.

mod claim;
mod routing_index;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use parking_lot::Mutex;
use types::client::Client;
use types::id::{ClientId, TunnelId, unix_millis};
use types::tunnel::{Hostname, Tunnel, TunnelProperties};

use self::claim::serves_alike;
use super::change::{Change, WebttyChange};
use super::counts::{Counts, Online};
use super::group::{Health, LoadMetric, NameHolders};
use super::names::{NameKey, NameRef, routed_hostname};
use super::recent_hostnames::{Order, RecentHostnames};
use super::tunnel_view::{restore_keys, tunnel_resource};
use super::view::View;
use super::watch::{AllChanges, Snapshot, Subscription, TooManyWatchersError, Watchers};
use super::{
    ClientHandle, ClientLimitError, DisplacedTunnel, Identity, LiveLimits, LiveTunnel,
    OpenTunnelError, OpenedTunnel, Route,
};
use crate::access::TunnelPolicy;
use crate::clock::Clock;
use crate::directory::Project;
use crate::random::random_bytes;

/// All live state of an engine. Shared by every worker; `A` is the handle of an agent.
#[derive(Debug)]
pub struct TunnelRegistry<A> {
    limits: LiveLimits,
    clock: Arc<dyn Clock>,
    by_hostname: papaya::HashMap<Hostname, NameHolders<A>>,
    by_name: papaya::HashMap<NameKey, NameHolders<A>>,
    by_id: papaya::HashMap<TunnelId, Arc<LiveTunnel<A>>>,
    recent_hostnames: RecentHostnames,
    state: Mutex<State<A>>,
}

/// State under the lock. Numbers are positions in the order of arrival.
#[derive(Debug)]
struct State<A> {
    next: u64,
    clients: BTreeMap<u64, ClientEntry>,
    client_seqs: HashMap<ClientId, u64>,
    tunnels: BTreeMap<u64, Arc<LiveTunnel<A>>>,
    /// Published TCP tunnels by their port.
    ports: HashMap<u16, u64>,
    hostname_order: Order,
    watchers: Watchers,
    /// Numbers of objects of each project that are online; without projects that have none.
    projects: HashMap<Arc<str>, Online>,
}

#[derive(Debug)]
struct ClientEntry {
    view: Arc<Client>,
    project: Arc<str>,
    tunnels: BTreeSet<u64>,
}

impl<A: LoadMetric> TunnelRegistry<A> {
    pub fn new(limits: LiveLimits, clock: Arc<dyn Clock>) -> Arc<Self> {
        let recent_hostnames =
            RecentHostnames::new(limits.remembered_hostnames, limits.hostname_memory);
        let watchers = Watchers::new(limits.watchers, limits.watcher_queue);
        Arc::new(Self {
            limits,
            clock,
            by_hostname: papaya::HashMap::new(),
            by_name: papaya::HashMap::new(),
            by_id: papaya::HashMap::new(),
            recent_hostnames,
            state: Mutex::new(State {
                next: 0,
                clients: BTreeMap::new(),
                client_seqs: HashMap::new(),
                tunnels: BTreeMap::new(),
                ports: HashMap::new(),
                hostname_order: Order::default(),
                watchers,
                projects: HashMap::new(),
            }),
        })
    }

    /// A fresh id for a control channel.
    pub fn new_client_id(&self) -> ClientId {
        ClientId::new(unix_millis(self.clock.now()), random_bytes())
    }

    /// Registers a control channel: `client.created`. Its id comes from
    /// [`TunnelRegistry::new_client_id`].
    ///
    /// # Errors
    /// [`ClientLimitError`] at [`LiveLimits::clients`], or at the limit of the project's plan.
    pub fn add_client(
        &self,
        client: Client,
        project: &Project,
    ) -> Result<Arc<Client>, ClientLimitError> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        if state.clients.len() >= self.limits.clients {
            return Err(ClientLimitError::Engine);
        }
        let allowed = project.state().limits.clients;
        let online = state.online(&project.id);
        let share = self.limits.share(project, self.limits.clients);
        if let Some(share) = share.filter(|share| online.clients as usize >= *share) {
            return Err(ClientLimitError::ProjectShare(share));
        }
        if let Some(allowed) = allowed.filter(|allowed| online.clients >= *allowed) {
            return Err(ClientLimitError::Plan(allowed));
        }
        state.count(&project.id, |online| online.clients += 1);
        let view = Arc::new(client);
        let seq = state.next_seq();
        state.client_seqs.insert(view.id, seq);
        let connected = ClientEntry {
            view: Arc::clone(&view),
            project: Arc::clone(&project.id),
            tunnels: BTreeSet::new(),
        };
        state.clients.insert(seq, connected);
        state
            .watchers
            .publish(&Change::client(now, None, Some(&view)));
        Ok(view)
    }

    /// Removes a control channel with its tunnels: `tunnel.deleted` for each, oldest first, then
    /// `client.deleted`. Accepted streams continue; their owner has to end them.
    pub fn remove_client(&self, id: &ClientId) -> Vec<Arc<LiveTunnel<A>>> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let Some(client) = state
            .client_seqs
            .remove(id)
            .and_then(|place| state.clients.remove(&place))
        else {
            return Vec::new();
        };
        state.count(&client.project, |online| online.clients -= 1);
        let closed: Vec<_> = client
            .tunnels
            .iter()
            .filter_map(|place| state.tunnels.remove(place))
            .collect();
        for tunnel in &closed {
            self.announce_closed(&mut state, tunnel, now);
        }
        state
            .watchers
            .publish(&Change::client(now, Some(&client.view), None));
        // The client is dropped outside the lock.
        drop(state);
        closed
    }

    /// Sends a change of a session to the watchers of terminals, in the order of the calls.
    pub fn publish_webtty(&self, change: WebttyChange) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.watchers.publish(&Change::webtty(now, change));
    }

    /// Changes the shown properties of a client: `client.updated`. Its id stays. Returns the new
    /// view.
    pub fn update_client(
        &self,
        id: &ClientId,
        change: impl FnOnce(&mut Client),
    ) -> Option<Arc<Client>> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let State {
            client_seqs: places,
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
    /// `properties` are resolved: the host name is complete ([`super::Namespace`]), and defaults
    /// are set. Names and host names belong to the identity. A second request of the same channel
    /// is refused, another channel of the same identity takes over immediately, and another
    /// identity is refused.
    pub fn open_tunnel(
        &self,
        owner: ClientHandle<A>,
        properties: TunnelProperties,
        policy: TunnelPolicy,
    ) -> Result<OpenedTunnel<A>, OpenTunnelError> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let id = TunnelId::new(unix_millis(now), random_bytes());
        let client_seq = *state
            .client_seqs
            .get(&owner.client_id)
            .ok_or(OpenTunnelError::NotConnected)?;
        let displaced = self.tunnels_to_displace(&state, &owner, &properties, &policy)?;
        let client = state
            .clients
            .get(&client_seq)
            .ok_or(OpenTunnelError::NotConnected)?;
        // Displaced tunnels belong to other channels: they free capacity of the engine, not of this
        // client.
        if state.tunnels.len() - displaced.len() >= self.limits.tunnels
            || client.tunnels.len() >= self.limits.tunnels_per_client
        {
            return Err(OpenTunnelError::Full);
        }
        // Displaced tunnels belong to the same project.
        let online = state.online(&owner.project.id).tunnels as usize - displaced.len();
        let share = self.limits.share(&owner.project, self.limits.tunnels);
        if let Some(share) = share.filter(|share| online >= *share) {
            return Err(OpenTunnelError::ProjectShareFull(share));
        }
        let allowed = owner.project.state().limits.tunnels;
        if let Some(allowed) = allowed.filter(|allowed| online >= *allowed as usize) {
            return Err(OpenTunnelError::PlanFull(allowed));
        }
        let view = Arc::new(tunnel_resource(id, &owner, &client.view, properties, now));
        let seq = state.next_seq();
        let tunnel = Arc::new(LiveTunnel {
            view,
            policy: Arc::new(policy),
            identity: owner.identity,
            project: owner.project,
            agent: owner.agent,
            health: Arc::new(Health::new(self.limits.failing)),
            meters: Arc::default(),
            closed_by_caller: Arc::default(),
            generation: None,
            seq,
        });
        // The new one is routed before the old ones are removed, so that visitors always find one.
        self.route_to(&mut state, &tunnel);
        for old in &displaced {
            state.tunnels.remove(&old.seq);
            state.with_client(&old.view.client_id, |client| {
                client.tunnels.remove(&old.seq)
            });
            self.announce_closed(&mut state, old, now);
        }
        state.count(&tunnel.project.id, |online| online.tunnels += 1);
        state.tunnels.insert(seq, Arc::clone(&tunnel));
        state.with_client(&owner.client_id, |client| client.tunnels.insert(seq));
        state
            .watchers
            .publish(&Change::tunnel(now, None, Some(&tunnel.view)));
        // The displaced tunnels are dropped outside the lock.
        drop(state);
        let displaced = displaced
            .iter()
            .map(|old| DisplacedTunnel::of(old))
            .collect();
        Ok(OpenedTunnel { tunnel, displaced })
    }

    /// Closes a tunnel of a client: `tunnel.deleted`. `None` if the client has no such tunnel.
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
        self.announce_closed(&mut state, &closed, now);
        Some(closed)
    }

    /// Closes a tunnel for a caller of the Engine API: `tunnel.deleted`. Its visits are to be
    /// ended. Returns false if the tunnel is not online any more.
    pub fn close_for_caller(&self, tunnel: &LiveTunnel<A>) -> bool {
        let closed = self.close_tunnel(&tunnel.view.client_id, &tunnel.view.id);
        if let Some(closed) = &closed {
            closed.closed_by_caller.store(true, Ordering::Release);
        }
        closed.is_some()
    }

    /// Removes the routes of a tunnel that has left the map of open tunnels: `tunnel.deleted`.
    fn announce_closed(&self, state: &mut State<A>, tunnel: &LiveTunnel<A>, now: Timestamp) {
        self.unroute(state, tunnel, now);
        state.count(&tunnel.project.id, |online| online.tunnels -= 1);
        state
            .watchers
            .publish(&Change::tunnel(now, Some(&tunnel.view), None));
    }

    /// Changes the shown properties of a tunnel: `tunnel.updated`. Its keys (id, client, name, host
    /// name, publication, protocol) stay. Returns the tunnel in its new state.
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
        restore_keys(&mut view, &old.view);
        let new = Arc::new(LiveTunnel {
            view: Arc::new(view),
            policy: Arc::clone(&old.policy),
            identity: old.identity.clone(),
            project: Arc::clone(&old.project),
            agent: Arc::clone(&old.agent),
            health: Arc::clone(&old.health),
            meters: Arc::clone(&old.meters),
            closed_by_caller: Arc::clone(&old.closed_by_caller),
            generation: old.generation,
            seq,
        });
        self.route_to(&mut state, &new);
        state.tunnels.insert(seq, Arc::clone(&new));
        state
            .watchers
            .publish(&Change::tunnel(now, Some(&old.view), Some(&new.view)));
        // The old state is dropped outside the lock.
        drop(state);
        Some(new)
    }

    /// The destination of a host name. `hostname` is in lower case, without port and trailing dot.
    pub fn route(&self, hostname: &str) -> Route<A> {
        if let Some(held) = self.by_hostname.pin().get(hostname) {
            Route::Online(held.choose())
        } else if self.recent_hostnames.holds(hostname, self.clock.now()) {
            Route::Offline
        } else {
            Route::Unknown
        }
    }

    /// Any tunnel with this host name. Tunnels that share it look the same to a visitor.
    /// [`TunnelRegistry::route`] chooses the one that serves, once for each visitor.
    pub fn any_tunnel_at(&self, hostname: &str) -> Option<Arc<LiveTunnel<A>>> {
        let holders = self.by_hostname.pin();
        holders.get(hostname)?.members().first().map(Arc::clone)
    }

    /// Another tunnel with the same name, for a visitor that this one failed to serve: one that
    /// shares the name, or one that has taken it over meanwhile. Its access rules are the same;
    /// `admits` checks that the visitor's proof covers it.
    pub fn failover_target(
        &self,
        failed: &LiveTunnel<A>,
        admits: impl Fn(&LiveTunnel<A>) -> bool,
    ) -> Option<Arc<LiveTunnel<A>>> {
        let properties = &failed.view.properties;
        // Another owner may have the name by now.
        let can_serve = |other: &LiveTunnel<A>| {
            other.identity == failed.identity
                && *other.policy == *failed.policy
                && serves_alike(other, properties)
                && admits(other)
        };
        if properties.share != Some(true) {
            let index = self.by_hostname.pin();
            let holder = index.get(routed_hostname(properties)?)?.members().first()?;
            let is_heir = holder.seq != failed.seq
                && holder.view.properties == *properties
                && can_serve(holder);
            return is_heir.then(|| Arc::clone(holder));
        }
        if let Some(hostname) = routed_hostname(properties) {
            return self
                .by_hostname
                .pin()
                .get(hostname)?
                .failover(failed, can_serve);
        }
        let key = NameKey::of(failed)?;
        self.by_name.pin().get(&key)?.failover(failed, can_serve)
    }

    /// The host name of the published tunnels with which an owner shares this name.
    pub fn shared_hostname(&self, owner: &Identity, name: &str) -> Option<Hostname> {
        let key = NameRef {
            project: &owner.project,
            name,
        };
        let names = self.by_name.pin();
        let members = names.get(&key)?.members();
        let first = members.first().filter(|first| first.identity == *owner)?;
        let properties = &first.view.properties;
        (properties.share == Some(true))
            .then(|| routed_hostname(properties).cloned())
            .flatten()
    }

    /// The tunnel with this id or name within a project, for a dialler.
    pub fn find(&self, project: &str, id_or_name: &str) -> Option<Arc<LiveTunnel<A>>> {
        let found = if let Ok(id) = id_or_name.parse::<TunnelId>() {
            self.by_id.pin().get(&id).map(Arc::clone)
        } else {
            let key = NameRef {
                project,
                name: id_or_name,
            };
            self.by_name.pin().get(&key).map(NameHolders::choose)
        };
        found.filter(|tunnel| &*tunnel.identity.project == project)
    }

    /// Returns true if a tunnel is online.
    pub fn is_online(&self, tunnel: &TunnelId) -> bool {
        self.by_id.pin().contains_key(tunnel)
    }

    /// The online tunnels of a client.
    pub fn tunnels_of(&self, client: &ClientId) -> Vec<TunnelId> {
        let state = self.state.lock();
        let place = state.client_seqs.get(client);
        let Some(client) = place.and_then(|place| state.clients.get(place)) else {
            return Vec::new();
        };
        let tunnels = client.tunnels.iter();
        let tunnels = tunnels.filter_map(|place| state.tunnels.get(place));
        tunnels.map(|tunnel| tunnel.view.id).collect()
    }

    /// Returns true if a host name is in use or remembered, so that it must not be drawn for
    /// another owner.
    pub fn is_reserved_name(&self, hostname: &Hostname) -> bool {
        !matches!(self.route(hostname.as_str()), Route::Unknown)
    }

    /// Takes a snapshot and subscribes to the later changes at the same instant, both filtered by
    /// `view` (EN-3).
    ///
    /// # Errors
    /// [`TooManyWatchersError`] at [`LiveLimits::watchers`].
    pub fn subscribe(&self, view: View) -> Result<Subscription, TooManyWatchersError> {
        let view = Arc::new(view);
        let mut state = self.state.lock();
        let is_alone = *view.project == *Project::COMMUNITY;
        let share = (!is_alone).then(|| self.limits.project_share.of(self.limits.watchers));
        let events = state.watchers.add(Arc::clone(&view), share)?;
        let at = self.clock.now();
        let (clients, tunnels) = state.all_objects();
        drop(state);
        // The snapshot is immutable, so it can be filtered outside the lock.
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

    /// Subscribes to every change of all projects. The engine itself has one such subscription. At
    /// most `queue` changes wait.
    pub fn subscribe_all(&self, queue: usize) -> AllChanges {
        self.state.lock().watchers.subscribe_all(queue)
    }

    /// The clients in `view`, oldest first, at most `limit`.
    pub fn clients(&self, view: &View, limit: usize) -> Vec<Arc<Client>> {
        let clients = self.state.lock().all_clients();
        clients
            .into_iter()
            .filter(|client| view.shows_client(client))
            .take(limit)
            .collect()
    }

    /// The tunnels in `view`, oldest first, at most `limit`.
    pub fn tunnels(&self, view: &View, limit: usize) -> Vec<Arc<Tunnel>> {
        let tunnels = self.state.lock().all_tunnels();
        tunnels
            .into_iter()
            .filter(|tunnel| view.shows_tunnel(tunnel))
            .take(limit)
            .collect()
    }

    /// Numbers of clients, tunnels and watchers; for metrics.
    pub fn counts(&self) -> Counts {
        let mut state = self.state.lock();
        Counts {
            clients: state.clients.len(),
            tunnels: state.tunnels.len(),
            watchers: state.watchers.count(),
            dropped_watchers: state.watchers.dropped(),
        }
    }

    /// Numbers of objects of each project that are online; projects without any are left out.
    pub fn online(&self) -> Vec<(Arc<str>, Online)> {
        let state = self.state.lock();
        let projects = state.projects.iter();
        projects
            .map(|(id, online)| (Arc::clone(id), *online))
            .collect()
    }

    /// Ends every subscription, and later ones immediately, because the engine is stopping.
    pub fn end_subscriptions(&self) {
        self.state.lock().watchers.stop();
    }
}

impl<A> State<A> {
    fn online(&self, project: &Arc<str>) -> Online {
        self.projects.get(project).copied().unwrap_or_default()
    }

    fn count(&mut self, project: &Arc<str>, change: impl FnOnce(&mut Online)) {
        let online = self.projects.entry(Arc::clone(project)).or_default();
        change(online);
        if *online == Online::default() {
            self.projects.remove(project);
        }
    }

    fn next_seq(&mut self) -> u64 {
        let seq = self.next;
        self.next += 1;
        seq
    }

    fn with_client<T>(
        &mut self,
        id: &ClientId,
        act: impl FnOnce(&mut ClientEntry) -> T,
    ) -> Option<T> {
        let place = self.client_seqs.get(id)?;
        self.clients.get_mut(place).map(act)
    }

    fn all_clients(&self) -> Vec<Arc<Client>> {
        self.clients
            .values()
            .map(|client| Arc::clone(&client.view))
            .collect()
    }

    fn all_tunnels(&self) -> Vec<Arc<Tunnel>> {
        self.tunnels
            .values()
            .map(|tunnel| Arc::clone(&tunnel.view))
            .collect()
    }

    fn all_objects(&self) -> (Vec<Arc<Client>>, Vec<Arc<Tunnel>>) {
        (self.all_clients(), self.all_tunnels())
    }
}

impl<A> DisplacedTunnel<A> {
    fn of(tunnel: &LiveTunnel<A>) -> Self {
        Self {
            client_id: tunnel.view.client_id,
            tunnel_id: tunnel.view.id,
            agent: Arc::clone(&tunnel.agent),
        }
    }
}
