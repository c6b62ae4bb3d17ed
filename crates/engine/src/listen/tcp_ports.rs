//! Ports of published TCP tunnels.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use types::id::TunnelId;
use types::tunnel::TunnelName;

use super::socket::{bind_like, listener};
use crate::agents::Agent;
use crate::core::Worker;
use crate::edge::raw;
use crate::live::{Identity, LiveTunnel};

/// How many ports are remembered for those who held them, so that a tunnel that comes back finds
/// its port again. As many as there can be of them would be 65,535.
const REMEMBERED: usize = 10_000;

/// Whose port it was: a named tunnel of an identity. Without a name there is nothing to come back
/// to.
type Holder = (Identity, Option<TunnelName>);

/// The range of ports, and who holds which.
#[derive(Debug)]
pub(crate) struct TcpPorts {
    range: Option<RangeInclusive<u16>>,
    ip: IpAddr,
    workers: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Ports in use. Listening sockets are shared between workers, and the system would share
    /// them between tunnels too: only what is here keeps strangers apart.
    held: HashMap<u16, Held>,
    open: HashMap<TunnelId, Open>,
    last: HashMap<Holder, u16>,
    next: u16,
}

/// Whose a port is, for how many tunnels: two while one takes over from the other.
#[derive(Debug)]
struct Held {
    holder: Holder,
    tunnels: usize,
}

#[derive(Debug)]
struct Open {
    claim: Claim,
    closed: CancellationToken,
}

/// A port that is nobody else's as long as this exists. Never dropped under the lock.
#[derive(Debug)]
struct Claim {
    port: u16,
    /// The holder has it already, for the tunnel that is being taken over.
    shared: bool,
    state: Weak<Mutex<State>>,
}

/// A port whose listeners wait for their tunnel.
#[derive(Debug)]
pub(crate) struct BoundPort {
    claim: Claim,
    holder: Holder,
    listeners: Vec<std::net::TcpListener>,
}

/// Why there is no port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPort {
    #[error("`protocol=tcp` is not available on this engine: it has no `tcp.port_range`")]
    SwitchedOff,
    #[error("no port of `tcp.port_range` is free")]
    Exhausted,
}

impl TcpPorts {
    /// Ports of `range` on the address of the TLS listener.
    pub(crate) fn new(range: Option<RangeInclusive<u16>>, ip: IpAddr, workers: usize) -> Self {
        Self {
            range,
            ip,
            workers,
            state: Arc::default(),
        }
    }

    /// Binds a port: the one that the holder had last, if it can be had, else the next free one.
    pub(crate) fn bind(&self, holder: &Holder) -> Result<BoundPort, NoPort> {
        let range = self.range.clone().ok_or(NoPort::SwitchedOff)?;
        let last = self.state.lock().last.get(holder).copied();
        let remembered = last.filter(|port| range.contains(port));
        let remembered = remembered.and_then(|port| self.bind_to(port, holder));
        if let Some(bound) = remembered {
            return Ok(bound);
        }
        for _ in 0..range.len() {
            let port = self.next_port(&range);
            // Shared is only what is remembered.
            if self.state.lock().held.contains_key(&port) {
                continue;
            }
            if let Some(bound) = self.bind_to(port, holder) {
                return Ok(bound);
            }
        }
        Err(NoPort::Exhausted)
    }

    /// Binds this port, unless it is somebody else's, of this engine or of the machine.
    fn bind_to(&self, port: u16, holder: &Holder) -> Option<BoundPort> {
        let claim = self.claim(port, holder)?;
        let addr = SocketAddr::new(self.ip, port);
        let bind = || {
            if !claim.shared {
                // Fails when anybody has it.
                drop(listener(addr, false)?);
            }
            bind_like(listener(addr, true)?, addr, self.workers)
        };
        let listeners = bind().ok()?;
        let holder = holder.clone();
        Some(BoundPort {
            claim,
            holder,
            listeners,
        })
    }

    fn claim(&self, port: u16, holder: &Holder) -> Option<Claim> {
        let mut state = self.state.lock();
        let held = state.held.entry(port).or_insert_with(|| Held {
            holder: holder.clone(),
            tunnels: 0,
        });
        // Tunnels without a name are never taken over.
        if held.tunnels > 0 && (held.holder != *holder || holder.1.is_none()) {
            return None;
        }
        held.tunnels += 1;
        Some(Claim {
            port,
            shared: held.tunnels > 1,
            state: Arc::downgrade(&self.state),
        })
    }

    /// Lets visitors in.
    pub(crate) fn serve(
        &self,
        bound: BoundPort,
        tunnel: &Arc<LiveTunnel<Agent>>,
        workers: &[Arc<Worker>],
    ) {
        let closed = CancellationToken::new();
        {
            let mut state = self.state.lock();
            let known = state.last.contains_key(&bound.holder);
            if bound.holder.1.is_some() && (known || state.last.len() < REMEMBERED) {
                state.last.insert(bound.holder, bound.claim.port);
            }
            let open = Open {
                claim: bound.claim,
                closed: closed.clone(),
            };
            state.open.insert(tunnel.view.id, open);
        }
        for (listener, worker) in bound.listeners.into_iter().zip(workers) {
            let (tunnel, closed) = (Arc::clone(tunnel), closed.clone());
            let visitors = Arc::clone(worker);
            worker.spawn(async move {
                match TcpListener::from_std(listener) {
                    Ok(listener) => accept(listener, &tunnel, &closed, &visitors).await,
                    Err(error) => warn!(%error, "a TCP tunnel's port cannot be served"),
                }
            });
        }
    }

    /// Stops admitting visitors to a tunnel. Those who are in stay.
    pub(crate) fn close(&self, tunnel: &TunnelId) {
        let open = self.state.lock().open.remove(tunnel);
        if let Some(Open { claim, closed }) = open {
            closed.cancel();
            drop(claim);
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
}

impl BoundPort {
    pub(crate) fn port(&self) -> u16 {
        self.claim.port
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(state) = self.state.upgrade() else {
            return;
        };
        let mut state = state.lock();
        if let Some(held) = state.held.get_mut(&self.port) {
            held.tunnels -= 1;
            if held.tunnels == 0 {
                state.held.remove(&self.port);
            }
        }
    }
}

async fn accept(
    listener: TcpListener,
    tunnel: &Arc<LiveTunnel<Agent>>,
    closed: &CancellationToken,
    worker: &Arc<Worker>,
) {
    let accepting = super::accept_loop(listener, worker, |stream, peer| {
        let (tunnel, visitor) = (Arc::clone(tunnel), Arc::clone(worker));
        worker.spawn(async move {
            if let Some(socket) = super::admit::admit(stream, peer, &visitor.core).await {
                raw::serve(socket, &tunnel, "tcp", &visitor).await;
            }
        });
    });
    tokio::select! {
        () = accepting => {}
        () = closed.cancelled() => {}
    }
}
