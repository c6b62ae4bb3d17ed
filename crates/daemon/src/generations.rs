//! A map of limited size that keeps the entries in use.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;

/// A map with two generations. When the young one is full it becomes the old one, and the previous
/// old one is dropped.
#[derive(Debug)]
pub struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    /// Size of one generation.
    size: usize,
}

impl<K: Eq + Hash, V> Generations<K, V> {
    /// Creates a map with at most `size` entries in each generation.
    pub fn new(size: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            size,
        }
    }

    /// Gets an entry.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// Gets an entry and moves it to the young generation, so that it stays.
    pub fn touch(&mut self, key: &K) -> Option<&V> {
        if !self.young.contains_key(key) {
            let (key, value) = self.old.remove_entry(key)?;
            self.put(key, value);
        }
        self.young.get(key)
    }

    /// Adds or replaces an entry.
    pub fn put(&mut self, key: K, value: V) {
        if self.young.len() >= self.size {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// Number of entries. A replaced entry counts twice while both generations contain its key.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_entries_stay_and_others_are_evicted() {
        let mut map = Generations::new(100);
        for number in 0..1_000 {
            map.put(number, number);
            assert_eq!(map.touch(&0), Some(&0), "a used entry stays");
            assert!(map.len() <= 200);
        }
        assert_eq!(map.get(&999), Some(&999));
        assert_eq!(map.get(&1), None);
    }

    #[test]
    fn a_replaced_entry_is_the_new_one_in_both_generations() {
        let mut map = Generations::new(2);
        map.put("a", 1);
        map.put("b", 1);
        map.put("c", 1);
        map.put("a", 2);
        assert_eq!(map.get(&"a"), Some(&2));
        assert_eq!(map.touch(&"a"), Some(&2));
    }
}
