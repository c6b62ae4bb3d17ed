//! A bounded map from digest to verdict, read without a lock.

use std::sync::Arc;

use arc_swap::ArcSwap;
use credentials::Verified;
use parking_lot::Mutex;

use super::tokens::Digest;

/// Two generations: when the young one is full it becomes the old one, and what was old is gone.
/// An entry that is used moves to the young one, so what is in use stays.
#[derive(Debug)]
pub(super) struct Cache {
    young: ArcSwap<Generation>,
    old: ArcSwap<Generation>,
    turning: Mutex<()>,
    half: usize,
}

type Generation = papaya::HashMap<Digest, Entry>;

/// A verdict, and the keys that it was found with.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) epoch: u64,
    pub(super) verified: Arc<Verified>,
}

impl Cache {
    /// Holds at most `capacity` entries, give or take those of a moment of concurrent insertion.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            young: ArcSwap::default(),
            old: ArcSwap::default(),
            turning: Mutex::new(()),
            half: (capacity / 2).max(1),
        }
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<Entry> {
        let found = self.young.load().pin().get(digest).cloned();
        if found.is_some() {
            return found;
        }
        let entry = self.old.load().pin().get(digest).cloned()?;
        self.put(*digest, entry.clone());
        Some(entry)
    }

    pub(super) fn put(&self, digest: Digest, entry: Entry) {
        let young = self.young.load();
        if young.len() < self.half {
            young.pin().insert(digest, entry);
            return;
        }
        drop(young);
        let turning = self.turning.lock();
        let young = self.young.load_full();
        // Another one may have turned while we waited.
        if young.len() >= self.half {
            self.old.store(young);
            self.young.store(Arc::default());
        }
        drop(turning);
        self.young.load().pin().insert(digest, entry);
    }
}
