//! Whether connections to PostgreSQL that wait in the pool are believed to live.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnectionMetadata;

/// What is known of the server's faith. Clones share it.
///
/// A connection is asked whether it lives when it comes back to the pool. To ask again when it is
/// taken is a round trip for each request, of which there are three or four; so one that was in
/// use a moment ago is taken as it is. Once one of them turns out to be dead, as all are when the
/// server starts again, every one is asked for a while.
#[derive(Clone, Debug)]
pub(crate) struct PoolHealth {
    began: Instant,
    /// In milliseconds after the beginning.
    doubted_until: Arc<AtomicU64>,
}

impl PoolHealth {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            doubted_until: Arc::default(),
        }
    }

    /// A connection was dead.
    pub(crate) fn mark_dead(&self) {
        let until = millis(self.began.elapsed() + DOUBT);
        self.doubted_until.fetch_max(until, Ordering::Relaxed);
    }

    /// Whether this connection is to be asked first.
    pub(crate) fn must_probe(&self, connection: &PoolConnectionMetadata) -> bool {
        let until = self.doubted_until.load(Ordering::Relaxed);
        connection.idle_for >= TRUSTED || millis(self.began.elapsed()) < until
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How long a connection is believed to be as it was when it came back: a server under load is
/// hardly asked, and one that is not has time for it.
const TRUSTED: Duration = Duration::from_secs(1);
/// Longer than it takes to use every connection of the pool once, and far longer than
/// [`TRUSTED`], after which all are asked anyway.
const DOUBT: Duration = Duration::from_secs(10);
