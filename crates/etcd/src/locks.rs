//! Locks of names, so that one claim of a name follows another.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use ownership::Name;
use tokio::sync::{Mutex, MutexGuard};

/// Locks of names: one claim, or the parking, of a name at a time. Several names share a lock.
#[derive(Debug)]
pub(crate) struct NameLocks(Vec<Mutex<()>>);

impl Default for NameLocks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| Mutex::new(())).collect())
    }
}

impl NameLocks {
    /// Locks all names, always in the same order.
    pub(crate) async fn lock(&self, names: &[Name]) -> Vec<MutexGuard<'_, ()>> {
        let mut places: Vec<usize> = names.iter().map(place_of).collect();
        places.sort_unstable();
        places.dedup();
        let mut guards = Vec::with_capacity(places.len());
        for lock in places.into_iter().filter_map(|place| self.0.get(place)) {
            guards.push(lock.lock().await);
        }
        guards
    }
}

fn place_of(name: &Name) -> usize {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or_default()
}

/// Many more than the claims that are in progress at the same time.
const LOCKS: usize = 1024;
