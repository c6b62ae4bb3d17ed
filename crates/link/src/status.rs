//! Status of a link, for metrics and readiness.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use api::link::Cursor;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Status of a link. Shared; counters only grow.
#[derive(Debug)]
pub struct Status {
    connected: watch::Sender<bool>,
    /// Time of the last message of the platform, or of the first request of this process.
    last_message_at: Mutex<Instant>,
    snapshots: AtomicU64,
    changes: AtomicU64,
    version: watch::Sender<u64>,
    saved: watch::Sender<bool>,
}

impl Status {
    pub(crate) fn new() -> Self {
        Self {
            connected: watch::Sender::new(false),
            last_message_at: Mutex::new(Instant::now()),
            snapshots: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            version: watch::Sender::new(0),
            saved: watch::Sender::new(true),
        }
    }

    /// False while the effective state cannot be written to disk. Writing is retried.
    pub fn is_saved(&self) -> bool {
        *self.saved.borrow()
    }

    /// Waits until [`Self::is_saved`] has this value.
    pub async fn wait_until_saved(&self, saved: bool) {
        // The sender is a field of this value, so it is never closed.
        self.saved
            .subscribe()
            .wait_for(|now| *now == saved)
            .await
            .ok();
    }

    /// Returns the previous value.
    pub(crate) fn set_saved(&self, saved: bool) -> bool {
        self.saved.send_replace(saved)
    }

    /// True if the link is connected and has caught up.
    pub fn is_connected(&self) -> bool {
        *self.connected.borrow()
    }

    /// Waits until [`Self::is_connected`] has this value.
    pub async fn wait_until_connected(&self, connected: bool) {
        // The sender is a field of this value, so it is never closed.
        self.connected
            .subscribe()
            .wait_for(|now| *now == connected)
            .await
            .ok();
    }

    /// Time of the last message of the platform, or of the first request if there was none.
    pub fn last_message_at(&self) -> Instant {
        *self.last_message_at.lock()
    }

    /// Number of applied snapshots.
    pub fn snapshots(&self) -> u64 {
        self.snapshots.load(Ordering::Relaxed)
    }

    /// Number of applied changes.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// The effective version; 0 before the first.
    pub fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// Waits until this version, or a later one, is effective.
    pub async fn wait_for_version(&self, version: u64) {
        // The sender is a field of this value, so it is never closed.
        self.version
            .subscribe()
            .wait_for(|reached| *reached >= version)
            .await
            .ok();
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.connected.send_replace(connected);
    }

    pub(crate) fn message_received(&self) {
        *self.last_message_at.lock() = Instant::now();
    }

    pub(crate) fn snapshot(&self, cursor: &Cursor) {
        self.snapshots.fetch_add(1, Ordering::Relaxed);
        self.set_version(cursor);
    }

    pub(crate) fn change(&self, cursor: &Cursor) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.set_version(cursor);
    }

    /// Sets the version, the number before the cursor's mark, with which operators compare engines.
    pub(crate) fn set_version(&self, cursor: &Cursor) {
        let version = cursor
            .0
            .split('.')
            .next()
            .and_then(|text| text.parse().ok());
        self.version.send_replace(version.unwrap_or(0));
    }
}
