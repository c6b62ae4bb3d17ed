//! Ports of published TCP tunnels.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use types::id::TunnelId;
use types::tunnel::TunnelName;

use super::port_memory::PortMemory;
use super::socket::{bind_like, listener};
use crate::agents::Agent;
use crate::clock::Clock;
use crate::config::{EngineConfig, Share};
use crate::live::{Identity, LiveTunnel};

/// How many ports of tunnels that went offline are remembered, so that one that reconnects gets its
/// port again. As many as there can be of them would be 65,535.
const REMEMBERED: usize = 10_000;

/// Whose port it was: a named tunnel of an identity. Without a name there is nothing to come back
/// to.
pub(super) type PortOwner = (Identity, Option<TunnelName>);

/// The range of ports, and who holds which.
#[derive(Debug)]
pub(crate) struct TcpPorts {
    range: Option<RangeInclusive<u16>>,
    ip: IpAddr,
    workers: usize,
    clock: Arc<dyn Clock>,
    /// The share of the memory of one project of several.
    share: Share,
    state: Mutex<State>,
    /// Ports that are bound and wait for their tunnel. Held while a port is tried and taken:
    /// listening sockets that workers share, two tunnels that try the same port at once would
    /// share too.
    waiting: Arc<Mutex<HashSet<u16>>>,
}

#[derive(Debug)]
struct State {
    open: HashMap<TunnelId, Arc<Port>>,
    /// Every port that still has listeners: those of a closed tunnel go when their workers come
    /// to it.
    held: HashMap<u16, Weak<Port>>,
    /// Ports of named tunnels that are online.
    online: HashMap<PortOwner, u16>,
    memory: PortMemory,
    next: u16,
}

/// A port with listeners.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    holder: PortOwner,
    /// Where visitors go; another one after a take-over.
    pub(super) tunnel: ArcSwap<LiveTunnel<Agent>>,
    pub(super) closed: CancellationToken,
}

/// A port that waits for its tunnel.
#[derive(Debug)]
pub(crate) struct BoundPort {
    number: u16,
    holder: PortOwner,
    listeners: Listeners,
}

#[derive(Debug)]
enum Listeners {
    Fresh(BoundListeners),
    /// Those of the tunnel that is being taken over: no visitor falls between.
    Inherited(Arc<Port>),
}

/// Listeners of a port that nobody else gets meanwhile.
#[derive(Debug)]
struct BoundListeners {
    number: u16,
    listeners: Vec<std::net::TcpListener>,
    waiting: Arc<Mutex<HashSet<u16>>>,
}

impl Drop for BoundListeners {
    fn drop(&mut self) {
        // First the sockets, then the word that they are gone.
        self.listeners.clear();
        self.waiting.lock().remove(&self.number);
    }
}

/// Why there is no port.
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
                held: HashMap::new(),
                online: HashMap::new(),
                memory: PortMemory::new(REMEMBERED),
                next: 0,
            }),
            waiting: Arc::default(),
        }
    }

    /// Binds a port that is reserved for the holder's project. A tunnel of the same identity that
    /// has it is about to be displaced.
    pub(crate) fn bind_reserved(
        &self,
        number: u16,
        holder: &PortOwner,
    ) -> Result<BoundPort, PortError> {
        let bound = |listeners| BoundPort {
            number,
            holder: holder.clone(),
            listeners,
        };
        // Until it is bound: nobody else is written down for it in between.
        let state = self.state.lock();
        let holding = state.holding(number);
        match &holding {
            Some(port) if port.holder.0 != holder.0 => return Err(PortError::Taken(number)),
            Some(port) if !port.closed.is_cancelled() => {
                return Ok(bound(Listeners::Inherited(Arc::clone(port))));
            }
            Some(_) | None => {}
        }
        // Shared with listeners of its own that are about to go.
        let fresh = self.listeners(number, holding.is_some());
        fresh
            .map(|fresh| bound(Listeners::Fresh(fresh)))
            .map_err(|_| PortError::Taken(number))
    }

    /// Binds a port: the one that the holder had last, if it can be had, else the next free one
    /// that is not `reserved` for some project.
    pub(crate) fn bind(
        &self,
        holder: &PortOwner,
        reserved: impl Fn(u16) -> bool,
    ) -> Result<BoundPort, PortError> {
        let range = self.range.clone().ok_or(PortError::SwitchedOff)?;
        let bound = |number, listeners| BoundPort {
            number,
            holder: holder.clone(),
            listeners,
        };
        let last = self.last_of(holder);
        if let Some(number) = last.filter(|number| range.contains(number) && !reserved(*number))
            && let Some(listeners) = self.bind_again(number, holder)
        {
            return Ok(bound(number, listeners));
        }
        for _ in 0..range.len() {
            let number = self.next_port(&range);
            if reserved(number) || self.is_held(number) {
                continue;
            }
            if let Ok(listeners) = self.listeners(number, false) {
                return Ok(bound(number, Listeners::Fresh(listeners)));
            }
        }
        Err(PortError::Exhausted)
    }

    /// The port that a holder has, or had until lately.
    fn last_of(&self, holder: &PortOwner) -> Option<u16> {
        let state = self.state.lock();
        let online = state.online.get(holder).copied();
        online.or_else(|| state.memory.get(holder, self.clock.now()))
    }

    /// Whether a tunnel of this engine has it: known without a system call, which counts where
    /// thousands are tried.
    fn is_held(&self, number: u16) -> bool {
        self.state.lock().holding(number).is_some()
    }

    /// The port that a holder had, unless somebody else has it now.
    fn bind_again(&self, number: u16, holder: &PortOwner) -> Option<Listeners> {
        // Until it is bound: nobody else is written down for it in between.
        let state = self.state.lock();
        match state.holding(number) {
            Some(port) if port.holder != *holder => None,
            Some(port) if !port.closed.is_cancelled() => Some(Listeners::Inherited(port)),
            // Shared with listeners of its own that are about to go.
            own => self
                .listeners(number, own.is_some())
                .ok()
                .map(Listeners::Fresh),
        }
    }

    /// Lets visitors in. Called before the tunnels that this one displaces are closed, whose port
    /// it may inherit.
    pub(crate) fn serve(
        &self,
        bound: BoundPort,
        tunnel: &Arc<LiveTunnel<Agent>>,
        accept: impl Fn(usize, std::net::TcpListener, Arc<Port>),
    ) {
        let BoundPort {
            number,
            holder,
            listeners,
        } = bound;
        let mut state = self.state.lock();
        // Until it is written down below whose the port is.
        let mut fresh = match listeners {
            Listeners::Fresh(fresh) => fresh,
            Listeners::Inherited(port) => {
                let displaced = port.tunnel.load().view.id;
                if state.open.remove(&displaced).is_some() {
                    port.tunnel.store(Arc::clone(tunnel));
                    state.open.insert(tunnel.view.id, port);
                    return;
                }
                // It was closed just now.
                let strange = state
                    .holding(number)
                    .is_some_and(|port| port.holder.0 != holder.0);
                let again = if strange {
                    Err(io::ErrorKind::AddrInUse.into())
                } else {
                    self.listeners(number, true)
                };
                match again {
                    Ok(fresh) => fresh,
                    Err(error) => {
                        warn!(%error, "a TCP tunnel's port cannot be bound again");
                        return;
                    }
                }
            }
        };
        if holder.1.is_some() {
            state.memory.forget(&holder);
            state.online.insert(holder.clone(), number);
        }
        let port = Arc::new(Port {
            number,
            holder,
            tunnel: ArcSwap::new(Arc::clone(tunnel)),
            closed: CancellationToken::new(),
        });
        state.open.insert(tunnel.view.id, Arc::clone(&port));
        state.held.insert(number, Arc::downgrade(&port));
        drop(state);
        let listeners = std::mem::take(&mut fresh.listeners);
        drop(fresh);
        for (worker, listener) in listeners.into_iter().enumerate() {
            accept(worker, listener, Arc::clone(&port));
        }
    }

    /// Stops admitting visitors to a tunnel. Those who are in stay.
    pub(crate) fn close(&self, tunnel: &TunnelId) {
        let mut state = self.state.lock();
        let Some(port) = state.open.remove(tunnel) else {
            return;
        };
        port.closed.cancel();
        // Of tunnels that share a name the last one is remembered.
        if state.online.get(&port.holder) == Some(&port.number) {
            state.online.remove(&port.holder);
            let project = &port.tunnel.load().project;
            let share = (!project.is_alone()).then(|| self.share.of(REMEMBERED));
            let now = self.clock.now();
            state.memory.note(&port.holder, port.number, share, now);
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

    /// A listener for each worker. Not shared: fails when anybody has the port, this engine too.
    fn listeners(&self, number: u16, shared: bool) -> io::Result<BoundListeners> {
        let mut waiting = self.waiting.lock();
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
            waiting: Arc::clone(&self.waiting),
        })
    }
}

impl State {
    /// Whose listeners are on this port, if there still are any.
    fn holding(&self, number: u16) -> Option<Arc<Port>> {
        self.held.get(&number).and_then(Weak::upgrade)
    }
}

impl BoundPort {
    pub(crate) fn port(&self) -> u16 {
        self.number
    }
}
