//! Ports of published TCP tunnels.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use types::id::TunnelId;
use types::tunnel::TunnelName;

mod handover;

use self::handover::InheritedPort;
pub(crate) use self::handover::PortRecord;
use super::port_memory::PortMemory;
use super::socket::{bind_like, listener};
use crate::agents::Agent;
use crate::clock::Clock;
use crate::config::{EngineConfig, QuotaPercent};
use crate::live::{Identity, LiveTunnel};

/// Limit of stored ports of tunnels that went offline, so that a reconnecting tunnel gets its port
/// again. There can be at most 65,535 such ports.
const MAX_REMEMBERED: usize = 10_000;

/// Owner of a port: a named tunnel of an identity. A tunnel without a name cannot get its port
/// again.
pub(super) type PortOwner = (Identity, Option<TunnelName>);

/// The range of ports, and their owners.
#[derive(Debug)]
pub(crate) struct TcpPorts {
    range: Option<RangeInclusive<u16>>,
    ip: IpAddr,
    workers: usize,
    clock: Arc<dyn Clock>,
    /// The share of the port memory for one of several projects.
    share: QuotaPercent,
    state: Mutex<State>,
    /// Ports that are bound and wait for their tunnel. The lock is held while a port is tried and
    /// bound. Workers share listening sockets, so two tunnels that try the same port at the same
    /// time would otherwise share it as well.
    pending_ports: Arc<Mutex<HashSet<u16>>>,
}

#[derive(Debug)]
struct State {
    open: HashMap<TunnelId, Arc<Port>>,
    /// Every port that still has listeners. Those of a closed tunnel are dropped when their workers
    /// process the close.
    listening: HashMap<u16, Weak<Port>>,
    /// Ports of named tunnels that are online.
    online: HashMap<PortOwner, u16>,
    memory: PortMemory,
    next: u16,
    /// Ports of the process that this one replaces.
    inherited: HashMap<u16, InheritedPort>,
}

/// A port with listeners.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    owner: PortOwner,
    /// The tunnel of the visitors; replaced by a take-over.
    pub(super) tunnel: ArcSwap<LiveTunnel<Agent>>,
    pub(super) closed: CancellationToken,
    /// The listeners of all workers, while they are served.
    pub(super) listeners: Mutex<Vec<Weak<TcpListener>>>,
}

/// A port that is bound and waits for its tunnel.
#[derive(Debug)]
pub(crate) struct BoundPort {
    number: u16,
    owner: PortOwner,
    listeners: Listeners,
}

#[derive(Debug)]
enum Listeners {
    New(BoundListeners),
    /// Listeners of the tunnel that is being taken over, so that visitors are served without
    /// interruption.
    Inherited(Arc<Port>),
}

/// Newly bound listeners. No other tunnel gets the port meanwhile.
#[derive(Debug)]
struct BoundListeners {
    number: u16,
    listeners: Vec<std::net::TcpListener>,
    pending_ports: Arc<Mutex<HashSet<u16>>>,
}

impl Drop for BoundListeners {
    fn drop(&mut self) {
        // The sockets are closed before the port is marked as free.
        self.listeners.clear();
        self.pending_ports.lock().remove(&self.number);
    }
}

/// Reason why a tunnel gets no port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    #[error("`protocol=tcp` is not available on this engine: it has no `tcp.port_range`")]
    SwitchedOff,
    #[error("no port of `tcp.port_range` is free")]
    Exhausted,
    #[error("`port` {0} is in use")]
    Taken(u16),
}

impl TcpPorts {
    /// Ports of `tcp.port_range` on the address of the TLS listener.
    pub(crate) fn new(config: &EngineConfig, workers: usize, clock: Arc<dyn Clock>) -> Self {
        Self {
            range: config.tcp_ports.clone(),
            ip: config.tls.ip(),
            workers,
            clock,
            share: config.limits.project_share,
            state: Mutex::new(State {
                open: HashMap::new(),
                listening: HashMap::new(),
                online: HashMap::new(),
                memory: PortMemory::new(MAX_REMEMBERED),
                next: 0,
                inherited: HashMap::new(),
            }),
            pending_ports: Arc::default(),
        }
    }

    /// Binds a port that is reserved for the owner's project. If a tunnel of the same identity uses
    /// the port, it is about to be displaced.
    pub(crate) fn bind_reserved(
        &self,
        number: u16,
        owner: &PortOwner,
    ) -> Result<BoundPort, PortError> {
        let bound = |listeners| BoundPort {
            number,
            owner: owner.clone(),
            listeners,
        };
        // The lock is held until the port is bound, so that no other tunnel is registered for it.
        let mut state = self.state.lock();
        let is_owner = |of: &PortOwner| of.0 == owner.0;
        if let Some(inherited) = self.take_inherited(&mut state, number, is_owner) {
            return Ok(bound(Listeners::New(inherited)));
        }
        let port_in_use = state.port_in_use(number);
        match &port_in_use {
            Some(port) if port.owner.0 != owner.0 => return Err(PortError::Taken(number)),
            Some(port) if !port.closed.is_cancelled() => {
                return Ok(bound(Listeners::Inherited(Arc::clone(port))));
            }
            Some(_) | None => {}
        }
        // The owner's earlier listeners, which are about to close, may share the port.
        let new_listeners = self.bind_listeners(number, port_in_use.is_some());
        new_listeners
            .map(|new_listeners| bound(Listeners::New(new_listeners)))
            .map_err(|_| PortError::Taken(number))
    }

    /// Binds a port: the owner's last one if it is available, otherwise the next free one that is
    /// not `reserved` for a project.
    pub(crate) fn bind(
        &self,
        owner: &PortOwner,
        reserved: impl Fn(u16) -> bool,
    ) -> Result<BoundPort, PortError> {
        let range = self.range.clone().ok_or(PortError::SwitchedOff)?;
        let bound = |number, listeners| BoundPort {
            number,
            owner: owner.clone(),
            listeners,
        };
        let last = self.last_of(owner);
        if let Some(number) = last.filter(|number| range.contains(number) && !reserved(*number))
            && let Some(listeners) = self.rebind(number, owner)
        {
            return Ok(bound(number, listeners));
        }
        for _ in 0..range.len() {
            let number = self.next_port(&range);
            if reserved(number) || self.is_in_use(number) {
                continue;
            }
            if let Ok(listeners) = self.bind_listeners(number, false) {
                return Ok(bound(number, Listeners::New(listeners)));
            }
        }
        Err(PortError::Exhausted)
    }

    /// The port that the owner has, or had recently.
    fn last_of(&self, owner: &PortOwner) -> Option<u16> {
        let state = self.state.lock();
        let online = state.online.get(owner).copied();
        online.or_else(|| state.memory.get(owner, self.clock.now()))
    }

    /// True if a tunnel of this engine uses the port. The check needs no system call, because
    /// thousands of ports may be tried.
    fn is_in_use(&self, number: u16) -> bool {
        self.state.lock().port_in_use(number).is_some()
    }

    /// Binds the owner's last port, unless another tunnel has it now.
    fn rebind(&self, number: u16, owner: &PortOwner) -> Option<Listeners> {
        // The lock is held until the port is bound, so that no other tunnel is registered for it.
        let mut state = self.state.lock();
        if let Some(inherited) = self.take_inherited(&mut state, number, |of| of == owner) {
            return Some(Listeners::New(inherited));
        }
        match state.port_in_use(number) {
            Some(port) if port.owner != *owner => None,
            Some(port) if !port.closed.is_cancelled() => Some(Listeners::Inherited(port)),
            // The owner's earlier listeners, which are about to close, may share the port.
            existing_port => self
                .bind_listeners(number, existing_port.is_some())
                .ok()
                .map(Listeners::New),
        }
    }

    /// Starts to accept visitors. It is called before the tunnels that this one displaces are
    /// closed, so that it can inherit their port.
    pub(crate) fn serve(
        &self,
        bound: BoundPort,
        tunnel: &Arc<LiveTunnel<Agent>>,
        accept: impl Fn(usize, std::net::TcpListener, Arc<Port>),
    ) {
        let BoundPort {
            number,
            owner,
            listeners,
        } = bound;
        let mut state = self.state.lock();
        // The lock is held until the new owner is registered below.
        let mut new_listeners = match listeners {
            Listeners::New(new_listeners) => new_listeners,
            Listeners::Inherited(port) => {
                let displaced = port.tunnel.load().view.id;
                if state.open.remove(&displaced).is_some() {
                    port.tunnel.store(Arc::clone(tunnel));
                    state.open.insert(tunnel.view.id, port);
                    return;
                }
                // The inherited port was closed meanwhile.
                let is_taken = state
                    .port_in_use(number)
                    .is_some_and(|port| port.owner.0 != owner.0);
                let rebound = if is_taken {
                    Err(io::ErrorKind::AddrInUse.into())
                } else {
                    self.bind_listeners(number, true)
                };
                match rebound {
                    Ok(new_listeners) => new_listeners,
                    Err(error) => {
                        warn!(%error, "the port of a TCP tunnel cannot be bound again");
                        return;
                    }
                }
            }
        };
        if owner.1.is_some() {
            state.memory.forget(&owner);
            state.online.insert(owner.clone(), number);
        }
        let port = Arc::new(Port {
            number,
            owner,
            tunnel: ArcSwap::new(Arc::clone(tunnel)),
            closed: CancellationToken::new(),
            listeners: Mutex::default(),
        });
        state.open.insert(tunnel.view.id, Arc::clone(&port));
        state.listening.insert(number, Arc::downgrade(&port));
        drop(state);
        let listeners = std::mem::take(&mut new_listeners.listeners);
        drop(new_listeners);
        for (worker, listener) in listeners.into_iter().enumerate() {
            accept(worker, listener, Arc::clone(&port));
        }
    }

    /// Stops accepting visitors for a tunnel. Existing connections continue.
    pub(crate) fn close(&self, tunnel: &TunnelId) {
        let mut state = self.state.lock();
        let Some(port) = state.open.remove(tunnel) else {
            return;
        };
        port.closed.cancel();
        // Only the last tunnel with this name stores the port.
        if state.online.get(&port.owner) == Some(&port.number) {
            state.online.remove(&port.owner);
            let project = &port.tunnel.load().project;
            let share = (!project.is_alone()).then(|| self.share.of(MAX_REMEMBERED));
            let now = self.clock.now();
            state.memory.store(&port.owner, port.number, share, now);
        }
    }

    fn next_port(&self, range: &RangeInclusive<u16>) -> u16 {
        let mut state = self.state.lock();
        let port = if range.contains(&state.next) {
            state.next
        } else {
            *range.start()
        };
        state.next = port.checked_add(1).unwrap_or(*range.start());
        port
    }

    /// Binds a listener for each worker. Without `shared` it fails if any process uses the port,
    /// including this engine.
    fn bind_listeners(&self, number: u16, shared: bool) -> io::Result<BoundListeners> {
        let mut waiting = self.pending_ports.lock();
        if waiting.contains(&number) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let addr = SocketAddr::new(self.ip, number);
        if !shared {
            drop(listener(addr, false)?);
        }
        let listeners = bind_like(listener(addr, true)?, addr, self.workers)?;
        waiting.insert(number);
        Ok(BoundListeners {
            number,
            listeners,
            pending_ports: Arc::clone(&self.pending_ports),
        })
    }
}

impl State {
    /// The port entry whose listeners still use this number.
    fn port_in_use(&self, number: u16) -> Option<Arc<Port>> {
        self.listening.get(&number).and_then(Weak::upgrade)
    }
}

impl BoundPort {
    pub(crate) fn port(&self) -> u16 {
        self.number
    }
}
