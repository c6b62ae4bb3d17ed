//! The task of one tunnel, which keeps it in the state of its last command.

use std::{convert::Infallible, sync::Arc, time::Duration};

use client::{
    Agent, CloseReason, Connection, ForwardOptions, Refusal, Status, Target, Tunnel,
    backoff::{Backoff, random},
};
use tokio::{
    sync::{mpsc, watch},
    time::{sleep, timeout},
};

use super::plan::DesiredTunnel;
use crate::process::agent_metrics::AgentMetrics;

/// A report of a tunnel's task.
#[derive(Debug)]
pub(super) enum TunnelReport {
    /// The status changed.
    Status {
        /// Its key.
        key: Arc<str>,
        /// The status.
        status: Status,
        /// The service.
        target: Target,
    },
    /// A stream started or ended.
    Stream {
        /// The tunnel's key.
        key: Arc<str>,
        /// The stream.
        stream: Connection,
    },
    /// An engine refuses the agent.
    Refused {
        /// Name of an additional engine. `None`: the top-level one.
        engine: Option<String>,
        /// The reason.
        refusal: Refusal,
    },
}

/// The desired state of a tunnel.
#[derive(Clone, Debug)]
pub(super) struct TunnelCommand {
    /// The agent that opens it.
    pub(super) agent_ref: AgentRef,
    /// The tunnel.
    pub(super) wanted: DesiredTunnel,
    /// The requested host name, so that visitors still find the service there: the previous
    /// one, or the tunnel's name.
    pub(super) address: Option<String>,
    /// A new number triggers a new attempt, even if nothing else changed.
    pub(super) attempt: u64,
}

/// An agent in use. The agent is not closed while a value of this type exists.
#[derive(Clone, Debug)]
pub(super) struct AgentRef {
    /// The agent.
    pub(super) agent: Agent,
    /// Number of the agent, because agents cannot be compared.
    pub(super) number: u64,
    /// Nothing is sent. The receiver completes when all senders are dropped.
    pub(super) _in_use: mpsc::Sender<Infallible>,
}

/// Keeps the tunnel until its commands end. Accepted streams continue after that.
pub(super) async fn run_tunnel(
    key: Arc<str>,
    mut orders: watch::Receiver<TunnelCommand>,
    reports: mpsc::Sender<TunnelReport>,
    metrics: AgentMetrics,
) {
    let mut order = orders.borrow_and_update().clone();
    let mut tunnel = order.open();
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
    loop {
        match keep_open(&key, &mut tunnel, &order, &mut orders, &reports, &metrics).await {
            AfterTunnel::Removed => return,
            AfterTunnel::Ordered(new) => {
                backoff.reset();
                if new.is_served_by(&order) && !is_over(&tunnel) {
                    // Only the service behind the tunnel changed, so the tunnel keeps its id and
                    // streams.
                    order = *new;
                    continue;
                }
                if new.agent_ref.number == order.agent_ref.number {
                    close_pending(tunnel).await;
                    tunnel = new.open();
                } else {
                    // The other agent takes over the name without an interruption for visitors.
                    let mut next = new.open();
                    // After success, refusal or timeout the old tunnel is not needed any more.
                    drop(timeout(TAKE_OVER, next.online()).await);
                    tunnel = next;
                }
                order = *new;
            }
            AfterTunnel::Later => {
                let wait = sleep(backoff.next_wait(random()));
                tokio::select! {
                    () = wait => tunnel = order.open(),
                    // New commands are handled at the start of the loop.
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

/// Reason to leave the tunnel's current state.
enum AfterTunnel {
    /// The tunnel is no longer wanted.
    Removed,
    /// A new command arrived.
    Ordered(Box<TunnelCommand>),
    /// The engine closed it without a reason.
    Later,
}

async fn keep_open(
    key: &Arc<str>,
    tunnel: &mut Tunnel,
    order: &TunnelCommand,
    orders: &mut watch::Receiver<TunnelCommand>,
    reports: &mpsc::Sender<TunnelReport>,
    metrics: &AgentMetrics,
) -> AfterTunnel {
    let mut status = tunnel.status();
    status.mark_changed();
    let observer = observe(key, reports, metrics);
    let forwarding = tunnel
        .forward(ForwardOptions::to(order.wanted.destination.clone()).with_observer(observer));
    tokio::pin!(forwarding);
    let mut over = false;
    let mut joined = false;
    loop {
        tokio::select! {
            biased;
            // Polled first, so that the service is reachable from the first moment.
            _closed = &mut forwarding, if !joined => joined = true,
            changed = orders.changed() => return match changed {
                Ok(()) => AfterTunnel::Ordered(Box::new(orders.borrow_and_update().clone())),
                Err(_gone) => AfterTunnel::Removed,
            },
            Ok(()) = status.changed(), if !over => {
                let now = status.borrow_and_update().clone();
                let next = match &now {
                    Status::Closed(CloseReason::ByEngine) => Some(AfterTunnel::Later),
                    _ => None,
                };
                over = matches!(now, Status::Closed(_));
                let target = order.wanted.destination.target.clone();
                let key = Arc::clone(key);
                // Sending fails only when the process ends.
                drop(reports.send(TunnelReport::Status { key, status: now, target }).await);
                if let Some(next) = next {
                    return next;
                }
            }
        }
    }
}

impl TunnelCommand {
    fn open(&self) -> Tunnel {
        let (agent, properties) = (&self.agent_ref.agent, self.wanted.properties.clone());
        match &self.address {
            Some(address) if properties.hostname.is_none() => agent.open_at(properties, address),
            _ => agent.open(properties),
        }
    }

    /// True if a tunnel that was opened for `other` can also serve this command.
    fn is_served_by(&self, other: &Self) -> bool {
        self.agent_ref.number == other.agent_ref.number
            && self.attempt == other.attempt
            && self.wanted.properties == other.wanted.properties
    }
}

/// Closes a tunnel whose name is requested again on the same connection. An online tunnel is closed
/// by a message that precedes the new request. A pending tunnel must be awaited.
async fn close_pending(tunnel: Tunnel) {
    let online = matches!(&*tunnel.status().borrow(), Status::Online(_));
    if !online {
        // After the timeout the engine may reject the name, and that is reported.
        drop(timeout(TAKE_OVER, tunnel.close()).await);
    }
}

fn is_over(tunnel: &Tunnel) -> bool {
    matches!(&*tunnel.status().borrow(), Status::Closed(_))
}

/// Reports streams through a bounded queue, so that a slow reader does not delay visitors.
fn observe(
    key: &Arc<str>,
    reports: &mpsc::Sender<TunnelReport>,
    metrics: &AgentMetrics,
) -> impl Fn(Connection) + use<> {
    let (key, reports, counter) = (Arc::clone(key), reports.clone(), metrics.streams());
    move |stream| {
        counter.count(&stream);
        let key = Arc::clone(&key);
        // If the queue is full, the line is dropped. The stream is not affected.
        drop(reports.try_send(TunnelReport::Stream { key, stream }));
    }
}

/// Time limit of a takeover, or of the close of a pending tunnel, at a reachable engine.
const TAKE_OVER: Duration = Duration::from_secs(10);
