//! A bounded map from digest to verification result. Every request reads it, so unlike
//! `daemon::generations` it is read without a lock.

use std::sync::Arc;

use arc_swap::ArcSwap;
use credentials::VerifiedToken;
use parking_lot::Mutex;

use super::digest::Digest;
use crate::directory::Credential;

/// Two generations. When the young one is full it becomes the old one, and the previous old one is
/// dropped. An entry that is used moves to the young one, so entries in use stay.
#[derive(Debug)]
pub(super) struct Cache<V> {
    young: ArcSwap<Generation<V>>,
    old: ArcSwap<Generation<V>>,
    rotation: Mutex<()>,
    half: usize,
}

type Generation<V> = papaya::HashMap<Digest, V>;

/// A verified token, and the state that its verification is based on.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) epoch: u64,
    pub(super) verified: Arc<VerifiedToken>,
    /// The stored credential behind it at that time; `None` if there is none.
    pub(super) source: Option<Arc<Credential>>,
}

impl<V: Clone> Cache<V> {
    /// Keeps at most `capacity` entries, plus those of concurrent insertions.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            young: ArcSwap::default(),
            old: ArcSwap::default(),
            rotation: Mutex::new(()),
            half: (capacity / 2).max(1),
        }
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<V> {
        let found = self.young.load().pin().get(digest).cloned();
        if found.is_some() {
            return found;
        }
        let entry = self.old.load().pin().get(digest).cloned()?;
        self.put(*digest, entry.clone());
        Some(entry)
    }

    pub(super) fn put(&self, digest: Digest, entry: V) {
        let young = self.young.load();
        if young.len() < self.half {
            young.pin().insert(digest, entry);
            return;
        }
        drop(young);
        let rotation = self.rotation.lock();
        let young = self.young.load_full();
        // Another thread may have rotated the generations while this one waited.
        if young.len() >= self.half {
            self.old.store(young);
            self.young.store(Arc::default());
        }
        drop(rotation);
        self.young.load().pin().insert(digest, entry);
    }
}

#[cfg(test)]
mod tests {
    use credentials::{Identity, TokenKind};

    use super::*;

    fn entry() -> Entry {
        let verified = VerifiedToken {
            kind: TokenKind::Pat,
            identity: Identity::User("ann".to_owned()),
            user_id: None,
            client_id: None,
            limits: credentials::Limits::none(),
            issued_at: None,
            credential_id: None,
            id: None,
            root: types::root::Root::Token([0; 32]),
            digest: [0; 32],
        };
        Entry {
            epoch: 0,
            verified: Arc::new(verified),
            source: None,
        }
    }

    fn digest(number: u64) -> Digest {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_be_bytes());
        digest
    }

    #[test]
    fn used_entries_stay_and_others_are_evicted() {
        let cache = Cache::new(100);
        for number in 0..10_000 {
            cache.put(digest(number), entry());
            assert!(cache.get(&digest(0)).is_some(), "a used entry stays");
            assert!(cache.young.load().len() + cache.old.load().len() <= 101);
        }
        assert!(cache.get(&digest(9_999)).is_some());
        assert!(cache.get(&digest(1)).is_none());
    }

    #[test]
    fn concurrent_insertions_keep_the_bound() {
        let cache = Cache::new(100);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let cache = &cache;
                scope.spawn(move || {
                    for number in 0..5_000 {
                        cache.put(digest(thread * 10_000 + number), entry());
                        cache.get(&digest(number));
                    }
                });
            }
        });
        // Each thread may be past the check when another one rotates the generations.
        assert!(cache.young.load().len() + cache.old.load().len() <= 110);
    }
}
