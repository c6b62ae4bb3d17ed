//! Ports of published TCP tunnels.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<TunnelId, Open>,
    last: HashMap<Holder, u16>,
    next: u16,
}

#[derive(Debug)]
struct Open {
    port: u16,
    closed: CancellationToken,
}

/// A port whose listeners wait for their tunnel.
#[derive(Debug)]
pub(crate) struct BoundPort {
    port: u16,
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
            state: Mutex::default(),
        }
    }

    /// Binds a port: the one that the holder had last, if it can be had, else the next free one.
    pub(crate) fn bind(&self, holder: Holder) -> Result<BoundPort, NoPort> {
        let range = self.range.clone().ok_or(NoPort::SwitchedOff)?;
        let last = self.state.lock().last.get(&holder).copied();
        let remembered = last.filter(|port| range.contains(port));
        if let Some(port) = remembered
            // Shared with the tunnel that is being taken over, and with nobody else.
            && let Ok(listeners) = self.listeners(port, self.is_open(port))
        {
            return Ok(BoundPort {
                port,
                holder,
                listeners,
            });
        }
        let count = range.len();
        for _ in 0..count {
            let port = self.next_port(&range);
            if let Ok(listeners) = self.listeners(port, false) {
                return Ok(BoundPort {
                    port,
                    holder,
                    listeners,
                });
            }
        }
        Err(NoPort::Exhausted)
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
            let open = Open {
                port: bound.port,
                closed: closed.clone(),
            };
            state.open.insert(tunnel.view.id, open);
            if bound.holder.1.is_some() && state.last.len() < REMEMBERED {
                state.last.insert(bound.holder, bound.port);
            }
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
        if let Some(open) = self.state.lock().open.remove(tunnel) {
            open.closed.cancel();
        }
    }

    fn is_open(&self, port: u16) -> bool {
        self.state
            .lock()
            .open
            .values()
            .any(|open| open.port == port)
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
    fn listeners(&self, port: u16, shared: bool) -> io::Result<Vec<std::net::TcpListener>> {
        let addr = SocketAddr::new(self.ip, port);
        if !shared {
            drop(listener(addr, false)?);
        }
        bind_like(listener(addr, true)?, addr, self.workers)
    }
}

impl BoundPort {
    pub(crate) fn port(&self) -> u16 {
        self.port
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
