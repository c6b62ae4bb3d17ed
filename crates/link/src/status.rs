//! How a link does, for metrics and readiness.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use api::link::Cursor;
use parking_lot::Mutex;
use tokio::sync::watch;

/// How a link does. Shared; counters only grow.
#[derive(Debug)]
pub struct Status {
    connected: watch::Sender<bool>,
    /// When the platform said something last, or when this process began to ask.
    heard: Mutex<Instant>,
    snapshots: AtomicU64,
    changes: AtomicU64,
    version: watch::Sender<u64>,
    saved: watch::Sender<bool>,
}

impl Status {
    pub(crate) fn new() -> Self {
        Self {
            connected: watch::Sender::new(false),
            heard: Mutex::new(Instant::now()),
            snapshots: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            version: watch::Sender::new(0),
            saved: watch::Sender::new(true),
        }
    }

    /// False while the state that is in force cannot be written to disk. It is tried again.
    pub fn is_saved(&self) -> bool {
        *self.saved.borrow()
    }

    /// Waits until writing the state succeeds, or fails.
    pub async fn becomes_saved(&self, saved: bool) {
        // Its sender is in this very value.
        self.saved
            .subscribe()
            .wait_for(|now| *now == saved)
            .await
            .ok();
    }

    /// Gives what was set before.
    pub(crate) fn set_saved(&self, saved: bool) -> bool {
        self.saved.send_replace(saved)
    }

    /// Whether the link stands and everything that was known when it was made has come.
    pub fn is_connected(&self) -> bool {
        *self.connected.borrow()
    }

    /// Waits until the link stands, or until it does not.
    pub async fn becomes(&self, connected: bool) {
        // Its sender is in this very value.
        self.connected
            .subscribe()
            .wait_for(|now| *now == connected)
            .await
            .ok();
    }

    /// When the platform said something last; before it ever did, when it was first asked.
    pub fn heard(&self) -> Instant {
        *self.heard.lock()
    }

    /// Snapshots that were put in force.
    pub fn snapshots(&self) -> u64 {
        self.snapshots.load(Ordering::Relaxed)
    }

    /// Changes that were put in force.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// The version that is in force, as the platform counts; 0 before the first.
    pub fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// Waits until this version, or a later one, is in force.
    pub async fn reaches(&self, version: u64) {
        // Its sender is in this very value.
        self.version
            .subscribe()
            .wait_for(|reached| *reached >= version)
            .await
            .ok();
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.connected.send_replace(connected);
    }

    pub(crate) fn hear(&self) {
        *self.heard.lock() = Instant::now();
    }

    pub(crate) fn snapshot(&self, cursor: &Cursor) {
        self.snapshots.fetch_add(1, Ordering::Relaxed);
        self.reached(cursor);
    }

    pub(crate) fn change(&self, cursor: &Cursor) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.reached(cursor);
    }

    /// The number in front of the mark is for people who compare engines; nothing is decided by it.
    pub(crate) fn reached(&self, cursor: &Cursor) {
        let version = cursor
            .0
            .split('.')
            .next()
            .and_then(|text| text.parse().ok());
        self.version.send_replace(version.unwrap_or(0));
    }
}
