//! Counters by key, for limits per source address, user or project.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// A counter for each key. Keys with a count of zero are removed.
#[derive(Clone, Debug)]
pub struct Counts<K>(HashMap<K, usize>);

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Counts<K> {
    /// The count of a key.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.0.get(key).copied().unwrap_or_default()
    }

    /// Increments the count of a key.
    pub fn increment(&mut self, key: K) {
        *self.0.entry(key).or_default() += 1;
    }

    /// Increments the count of a key if it is below `limit`. Returns true if it was incremented.
    pub fn increment_below(&mut self, key: K, limit: usize) -> bool {
        let is_below = self.get(&key) < limit;
        if is_below {
            self.increment(key);
        }
        is_below
    }

    /// Decrements the count of a key.
    pub fn decrement<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(count) = self.0.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(key);
            }
        }
    }

    /// The keys whose count has reached `limit`.
    pub fn keys_at_limit(&self, most: usize) -> impl Iterator<Item = &K> {
        let full = self.0.iter().filter(move |(_, count)| **count >= most);
        full.map(|(key, _)| key)
    }

    /// True if every count is zero.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_count_and_is_removed_at_zero() {
        let mut counts = Counts::default();
        assert!(counts.increment_below("a", 2) && counts.increment_below("a", 2));
        assert!(!counts.increment_below("a", 2));
        assert!(counts.increment_below("b", 2) && !counts.increment_below("c", 0));
        assert_eq!(
            (counts.get("a"), counts.get("b"), counts.get("c")),
            (2, 1, 0)
        );
        assert_eq!(counts.keys_at_limit(2).collect::<Vec<_>>(), [&"a"]);
        for key in ["a", "a", "b", "b", "c"] {
            counts.decrement(key);
        }
        assert!(counts.is_empty());
    }
}
