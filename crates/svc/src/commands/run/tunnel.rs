//! One tunnel of many: a task that keeps it as its last order says.

use std::{convert::Infallible, sync::Arc, time::Duration};

use client::{
    Agent, Closed, Connection, Forwarding, Refusal, Status, Target, Tunnel,
    backoff::{Backoff, random},
};
use tokio::{
    sync::{mpsc, watch},
    time::{sleep, timeout},
};

use super::plan::DesiredTunnel;

/// What a task of a tunnel tells.
#[derive(Debug)]
pub(super) enum TunnelReport {
    /// It changed.
    Status {
        /// Its key.
        key: Arc<str>,
        /// Where it stands.
        status: Status,
        /// The service.
        target: Target,
    },
    /// A stream began or ended.
    Stream {
        /// The tunnel's key.
        key: Arc<str>,
        /// The stream.
        stream: Connection,
    },
    /// An engine refuses the agent.
    Refused {
        /// Which of the further engines; `None`: the one at the top.
        engine: Option<String>,
        /// Why.
        refusal: Refusal,
    },
}

/// How a tunnel shall be.
#[derive(Clone, Debug)]
pub(super) struct TunnelCommand {
    /// The agent that holds it.
    pub(super) on: AgentTunnel,
    /// The tunnel.
    pub(super) wanted: DesiredTunnel,
    /// The host name that it had, which it gets again if that can be: who was given an address goes
    /// on finding the service there.
    pub(super) address: Option<String>,
    /// Another number is another attempt, also where nothing else is new.
    pub(super) attempt: u64,
}

/// An agent in use. While there is one of these, the agent is not closed.
#[derive(Clone, Debug)]
pub(super) struct AgentTunnel {
    /// The agent.
    pub(super) agent: Agent,
    /// Its number: agents have no equality of their own.
    pub(super) number: u64,
    /// Nothing is sent: it is there, or all are gone.
    pub(super) _in_use: mpsc::Sender<Infallible>,
}

/// Keeps the tunnel until its orders end. What it has accepted goes on then.
pub(super) async fn keep(
    key: Arc<str>,
    mut orders: watch::Receiver<TunnelCommand>,
    told: mpsc::Sender<TunnelReport>,
) {
    let mut order = orders.borrow_and_update().clone();
    let mut tunnel = order.open();
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
    loop {
        match hold(&key, &mut tunnel, &order, &mut orders, &told).await {
            AfterTunnel::Gone => return,
            AfterTunnel::Ordered(new) => {
                backoff.reset();
                if new.is_served_by(&order) && !is_over(&tunnel) {
                    // Another service behind the same tunnel: its id and its streams stay.
                    order = *new;
                    continue;
                }
                if new.on.number == order.on.number {
                    leave(tunnel).await;
                    tunnel = new.open();
                } else {
                    // The other agent takes the name over: visitors see no gap.
                    let mut next = new.open();
                    // Online, refused or late: either way the old one is not needed longer.
                    drop(timeout(TAKE_OVER, next.online()).await);
                    tunnel = next;
                }
                order = *new;
            }
            AfterTunnel::WithoutAddress => {
                order.address = None;
                tunnel = order.open();
            }
            AfterTunnel::Later => {
                let wait = sleep(backoff.next_wait(random()));
                tokio::select! {
                    () = wait => tunnel = order.open(),
                    // An order is seen at the top.
                    changed = orders.changed() => match changed {
                        Ok(()) => {
                            order = orders.borrow_and_update().clone();
                            tunnel = order.open();
                        }
                        Err(_gone) => return,
                    },
                }
            }
        }
    }
}

/// Why a tunnel is no longer held as it was.
enum AfterTunnel {
    /// It is not wanted any more.
    Gone,
    /// It is wanted in another way.
    Ordered(Box<TunnelCommand>),
    /// The address that it had is not to be had.
    WithoutAddress,
    /// The engine closed it and did not say why.
    Later,
}

async fn hold(
    key: &Arc<str>,
    tunnel: &mut Tunnel,
    order: &TunnelCommand,
    orders: &mut watch::Receiver<TunnelCommand>,
    told: &mpsc::Sender<TunnelReport>,
) -> AfterTunnel {
    let mut status = tunnel.status();
    status.mark_changed();
    let observer = observe(key, told);
    let forwarding =
        tunnel.forward(Forwarding::to(order.wanted.destination.clone()).with_observer(observer));
    tokio::pin!(forwarding);
    let mut over = false;
    let mut joined = false;
    loop {
        tokio::select! {
            biased;
            // Polled first, so that a visitor finds the service from the first moment on.
            _closed = &mut forwarding, if !joined => joined = true,
            changed = orders.changed() => return match changed {
                Ok(()) => AfterTunnel::Ordered(Box::new(orders.borrow_and_update().clone())),
                Err(_gone) => AfterTunnel::Gone,
            },
            Ok(()) = status.changed(), if !over => {
                let now = status.borrow_and_update().clone();
                let next = match &now {
                    Status::Closed(Closed::ByEngine) => Some(AfterTunnel::Later),
                    Status::Closed(Closed::Refused(_)) if order.address.is_some() => {
                        return AfterTunnel::WithoutAddress;
                    }
                    _ => None,
                };
                over = matches!(now, Status::Closed(_));
                let target = order.wanted.destination.target.clone();
                let key = Arc::clone(key);
                // An error is the end of the process.
                drop(told.send(TunnelReport::Status { key, status: now, target }).await);
                if let Some(next) = next {
                    return next;
                }
            }
        }
    }
}

impl TunnelCommand {
    fn open(&self) -> Tunnel {
        let mut properties = self.wanted.properties.clone();
        if properties.hostname.is_none() {
            properties.hostname.clone_from(&self.address);
        }
        self.on.agent.open(properties)
    }

    /// Whether a tunnel that was opened for the other one serves this one too.
    fn is_served_by(&self, other: &Self) -> bool {
        self.on.number == other.on.number
            && self.attempt == other.attempt
            && self.wanted.properties == other.wanted.properties
    }
}

/// Closes a tunnel whose name is asked for again on the same channel. One that is online is closed
/// by the message before the one that asks; one that the engine has not answered yet must be waited
/// for.
async fn leave(tunnel: Tunnel) {
    let online = matches!(&*tunnel.status().borrow(), Status::Online(_));
    if !online {
        // Late is as good: the engine then refuses the name, which is told.
        drop(timeout(TAKE_OVER, tunnel.close()).await);
    }
}

fn is_over(tunnel: &Tunnel) -> bool {
    matches!(&*tunnel.status().borrow(), Status::Closed(_))
}

/// Streams are told through a bounded queue: a reader that does not keep up must not hold visitors.
fn observe(key: &Arc<str>, told: &mpsc::Sender<TunnelReport>) -> impl Fn(Connection) + use<> {
    let (key, told) = (Arc::clone(key), told.clone());
    move |stream| {
        let key = Arc::clone(&key);
        // A full queue loses the line, not the stream.
        drop(told.try_send(TunnelReport::Stream { key, stream }));
    }
}

/// As long as an engine that is reached may take to answer.
const TAKE_OVER: Duration = Duration::from_secs(10);
