//! How much recordings of each project take.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Bytes of each project, as far as this engine knows: what it found when it looked, and what it
/// stored and removed since.
#[derive(Debug, Default)]
pub(super) struct Usage(Mutex<HashMap<String, u64>>);

impl Usage {
    pub(super) fn of(&self, project: &str) -> u64 {
        self.0.lock().get(project).copied().unwrap_or_default()
    }

    /// An object of `before` bytes has `now`.
    pub(super) fn change(&self, project: &str, before: u64, now: u64) {
        let mut all = self.0.lock();
        let bytes = all.entry(project.to_owned()).or_default();
        *bytes = bytes.saturating_sub(before).saturating_add(now);
    }

    /// What was found.
    pub(super) fn set(&self, project: &str, bytes: u64) {
        self.0.lock().insert(project.to_owned(), bytes);
    }
}
