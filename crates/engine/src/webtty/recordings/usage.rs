//! Storage used by the recordings of each project.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Bytes per project, as this engine has counted them: the result of the last count, plus the
/// objects stored and removed since.
#[derive(Debug, Default)]
pub(super) struct Usage(Mutex<HashMap<String, u64>>);

impl Usage {
    pub(super) fn of(&self, project: &str) -> u64 {
        self.0.lock().get(project).copied().unwrap_or_default()
    }

    /// Records that an object of `before` bytes now has `now` bytes.
    pub(super) fn change(&self, project: &str, before: u64, now: u64) {
        let mut all = self.0.lock();
        let bytes = all.entry(project.to_owned()).or_default();
        *bytes = bytes.saturating_sub(before).saturating_add(now);
    }

    /// Sets the result of a count.
    pub(super) fn set(&self, project: &str, bytes: u64) {
        self.0.lock().insert(project.to_owned(), bytes);
    }
}
