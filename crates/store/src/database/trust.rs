//! Health of idle connections to PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnectionMetadata;

/// Health state of a pool. Clones share it.
///
/// A connection is tested when it returns to the pool. Another test when it is taken would cost a
/// round trip for each of the three or four uses per request, so a connection that was in use a
/// moment ago is not tested again. Once one of them turns out to be dead, as all are after a
/// restart of the server, every connection is tested for a while.
#[derive(Clone, Debug)]
pub(crate) struct PoolHealth {
    began: Instant,
    /// In milliseconds since the creation.
    probe_until: Arc<AtomicU64>,
}

impl PoolHealth {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            probe_until: Arc::default(),
        }
    }

    /// A connection was dead.
    pub(crate) fn mark_dead(&self) {
        let until = millis(self.began.elapsed() + PROBE_PERIOD);
        self.probe_until.fetch_max(until, Ordering::Relaxed);
    }

    /// True if this connection must be tested first.
    pub(crate) fn must_probe(&self, connection: &PoolConnectionMetadata) -> bool {
        let until = self.probe_until.load(Ordering::Relaxed);
        connection.idle_for >= HEALTHY_PERIOD || millis(self.began.elapsed()) < until
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Time for which a returned connection counts as healthy: under load few are tested, and without
/// load the test does not matter.
const HEALTHY_PERIOD: Duration = Duration::from_secs(1);
/// Longer than it takes to use every connection of the pool once, and far longer than [`HEALTHY_PERIOD`],
/// after which all are tested anyway.
const PROBE_PERIOD: Duration = Duration::from_secs(10);
