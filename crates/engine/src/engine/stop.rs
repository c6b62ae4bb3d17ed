//! The end of an engine: admission stops, and its parts are taken down in their order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use acme::{Orders, RunningResponder};
use daemon::access_log::AccessLogThread;
use daemon::metrics::{MetricsServer, Readiness};
use tokio::task::JoinHandle;
use tracing::info;
use transport::Workers;

use crate::core::Core;
use crate::managed::LinkHandle;
use crate::metrics::REFRESH;
use crate::storage::Storage;

/// Time limit for agents and their last messages once the visits are over.
const FAREWELL: Duration = Duration::from_secs(2);

/// Part of a drain, at its end, in which WebSockets are closed: Close frames and disconnects have a
/// second each, and connections of visitors close after them. At most half of the drain.
const CLOSING: Duration = Duration::from_secs(3);

/// The parts that are taken down at the end, in this order.
pub(super) struct Parts {
    pub(super) workers: Workers,
    pub(super) metrics: Option<MetricsServer>,
    pub(super) readiness: Readiness,
    pub(super) managed: Option<LinkHandle>,
    pub(super) orders: Option<Orders>,
    pub(super) domain_orders: Option<std::thread::JoinHandle<()>>,
    pub(super) responder: Option<RunningResponder>,
    pub(super) log_thread: Option<AccessLogThread>,
}

/// Keeps the gauges current while the engine runs, then takes it down. Admission stops, watchers
/// are notified, visits finish, agents are disconnected, recordings are stored, connections to
/// other servers finish, workers stop, and the log is flushed. A hard stop aborts any of these
/// waits.
pub(super) async fn run_until_stopped(core: Arc<Core>, mut parts: Parts) {
    let drain = core.shutdown.drain();
    let hard = core.shutdown.hard();
    let mut refresh = tokio::time::interval(REFRESH);
    let storage = Storage::of(&core.config, core.access_log.as_ref());
    let mut storage_check: Option<JoinHandle<()>> = None;
    loop {
        tokio::select! {
            () = drain.cancelled() => break,
            _ = refresh.tick() => {
                refresh_state(&core, &parts);
                if storage_check.as_ref().is_none_or(JoinHandle::is_finished) {
                    let (storage, readiness) = (storage.clone(), parts.readiness.clone());
                    // A disk that hangs only blocks this check.
                    storage_check = Some(tokio::task::spawn_blocking(move || {
                        readiness.set_disk_full(storage.is_full());
                    }));
                }
            }
        }
    }
    info!("draining");
    parts.readiness.set_ready(false);
    core.handover.close_listeners();
    if core.handover.replaced().is_cancelled() {
        // The new process serves the same address.
        if let Some(metrics) = parts.metrics.take() {
            metrics.stop().await;
        }
        core.handover.release();
    }
    core.live.end_subscriptions();
    core.visits.close();
    core.agents.close();
    finish_visits(&core).await;
    core.agents_stop.cancel();
    tokio::select! {
        () = core.agents.wait() => {}
        () = tokio::time::sleep(FAREWELL) => {}
        () = hard.cancelled() => {}
    }
    tokio::select! {
        () = core.terminals.recorder.finish() => {}
        () = hard.cancelled() => core.terminals.recorder.unlock(),
    }
    let Parts {
        workers,
        metrics,
        managed,
        orders,
        domain_orders,
        responder,
        log_thread,
        ..
    } = parts;
    finish_connections(&core, managed).await;
    // Joins threads, so it must not block the current one.
    let joined = tokio::task::spawn_blocking(move || {
        drop(workers);
        if let Some(orders) = orders {
            orders.finish();
        }
        if let Some(domain_orders) = domain_orders {
            domain_orders.join().ok();
        }
        if let Some(log_thread) = log_thread {
            log_thread.finish();
        }
    });
    joined.await.ok();
    // Names of published services have addresses until their visits have finished.
    if let Some(responder) = responder {
        responder.stop().await;
    }
    if let Some(metrics) = metrics {
        metrics.stop().await;
    }
    core.handover.close().await;
    info!("stopped");
}

/// Updates gauges and readiness, and closes idle connections to services.
fn refresh_state(core: &Core, parts: &Parts) {
    core.metrics.refresh(core.live.counts(), core.gauges());
    if let Some(managed) = &parts.managed {
        managed.refresh();
    }
    if let Some(orders) = &parts.orders {
        orders.refresh(&parts.readiness);
    }
    for worker in core.workers() {
        worker.trim(Instant::now());
    }
}

/// Waits for the visits, and for those of the process before if connections for it are passed through
/// this one. WebSockets are closed shortly before the deadline.
async fn finish_visits(core: &Core) {
    let finished = async {
        core.visits.wait().await;
        if core.handover.replaced().is_cancelled() {
            core.handover.predecessor_ended().cancelled().await;
        }
    };
    let deadline = core.shutdown.deadline();
    let closing = async {
        tokio::time::sleep(deadline.saturating_sub(CLOSING.min(deadline / 2))).await;
        core.closing.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = finished => {}
        () = closing => {}
        () = core.shutdown.hard().cancelled() => {}
    }
}

/// Ends the link to the platform, and waits for connections to other servers. They are not visits:
/// the link itself may be one of them, if the platform is the server of a route.
async fn finish_connections(core: &Core, link: Option<LinkHandle>) {
    let finished = async {
        if let Some(link) = link {
            link.finish().await;
        }
        core.routed.close();
        core.routed.wait().await;
    };
    tokio::select! {
        () = finished => {}
        () = core.shutdown.hard().cancelled() => {}
    }
}
