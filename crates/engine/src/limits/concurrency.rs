//! Concurrent visits of a project.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The active visits of a project.
#[derive(Debug, Default)]
pub struct ConcurrencyLimit(AtomicUsize);

impl ConcurrencyLimit {
    /// Counts one more visit, unless there are `most` already.
    pub(super) fn acquire(&self, most: usize) -> bool {
        // Counted first, so that two visits at the same time do not exceed the limit.
        let is_free = self.0.fetch_add(1, Ordering::Relaxed) < most;
        if !is_free {
            self.release();
        }
        is_free
    }

    /// Ends a visit that was counted.
    pub(super) fn release(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
