//! Gauges that are sampled: readiness and the pool of database connections.

use std::sync::Arc;
use std::time::Duration;

use acme::Orders;
use daemon::metrics::Readiness;
use metrics::gauge;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::runtime::metrics::table;

/// Updates the sampled gauges until the drain: the readiness, which the metrics listener also
/// reports, and the pool of database connections. Then it waits for the end of `orders`, which the
/// drain stops.
pub(crate) async fn watch(
    app: Arc<App>,
    readiness: Readiness,
    orders: Option<Orders>,
    drain: CancellationToken,
) {
    while !drain.is_cancelled() {
        let is_ready = tokio::select! {
            is_ready = app.health.is_ready(&app.store) => is_ready && !app.clock_skew.is_too_large(),
            () = drain.cancelled() => false,
        };
        readiness.set_ready(is_ready);
        if let Some(orders) = &orders {
            orders.refresh(&readiness);
        }
        gauge!(table::READY).set(f64::from(u8::from(readiness.is_ready())));
        let pool = app.store.pool();
        gauge!(table::CONNECTIONS, "state" => "idle").set(f64::from(pool.idle));
        gauge!(table::CONNECTIONS, "state" => "used").set(f64::from(pool.used));
        tokio::select! {
            () = drain.cancelled() => {}
            () = tokio::time::sleep(EVERY) => {}
        }
    }
    readiness.set_ready(false);
    gauge!(table::READY).set(0.0);
    if let Some(orders) = orders {
        // Joins a thread, so it must not block the current one.
        let joined = tokio::task::spawn_blocking(move || orders.finish());
        joined.await.ok();
    }
}

/// The same interval as in the engine. Scrapers poll less often.
const EVERY: Duration = Duration::from_secs(5);
