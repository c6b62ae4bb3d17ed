//! The eviction order of a bounded memory: the oldest entry first, but projects that exceed their
//! share before all others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Keys in the order in which they were added, for all projects and for each.
#[derive(Debug)]
pub(crate) struct ArrivalOrder<K> {
    next: u64,
    keys: BTreeMap<u64, K>,
    /// The positions of each project.
    of_project: HashMap<Box<str>, BTreeSet<u64>>,
}

impl<K> Default for ArrivalOrder<K> {
    fn default() -> Self {
        Self {
            next: 0,
            keys: BTreeMap::new(),
            of_project: HashMap::new(),
        }
    }
}

impl<K> ArrivalOrder<K> {
    /// Adds a key as the newest of a project, and returns its position.
    pub(crate) fn add(&mut self, key: K, project: &str) -> u64 {
        let place = self.next;
        self.next += 1;
        self.keys.insert(place, key);
        let places = self.of_project.entry(project.into()).or_default();
        places.insert(place);
        place
    }

    pub(crate) fn remove(&mut self, place: u64, project: &str) {
        self.keys.remove(&place);
        if let Some(places) = self.of_project.get_mut(project) {
            places.remove(&place);
            if places.is_empty() {
                self.of_project.remove(project);
            }
        }
    }

    /// The oldest key of a project that has more of them than it may.
    pub(crate) fn beyond(&self, project: &str, share: usize) -> Option<&K> {
        let places = self.of_project.get(project)?;
        let oldest = places.first().filter(|_| places.len() > share)?;
        self.keys.get(oldest)
    }

    pub(crate) fn oldest(&self) -> Option<&K> {
        self.keys.first_key_value().map(|(_, key)| key)
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Number of projects that have a key.
    #[cfg(test)]
    pub(crate) fn projects(&self) -> usize {
        self.of_project.len()
    }
}
