//! Host names that were online recently.

use std::time::Duration;

use jiff::Timestamp;

/// Recently used host names. The oldest is dropped first, and those of a project above its share
/// before all others. Writers hold the lock of the live state and own `order`; readers use `until`
/// without a lock.
#[derive(Debug)]
pub(super) struct RecentHostnames {
    until: papaya::HashMap<Box<str>, Entry>,
    capacity: usize,
    keep: Duration,
}

/// The order in which names are dropped; protected by the owner's lock.
pub(super) type Order = crate::limits::ArrivalOrder<Box<str>>;

#[derive(Debug, Clone)]
struct Entry {
    place: u64,
    project: Box<str>,
    until: Timestamp,
}

impl RecentHostnames {
    pub(super) fn new(capacity: usize, keep: Duration) -> Self {
        Self {
            until: papaya::HashMap::new(),
            capacity,
            keep,
        }
    }

    /// Returns true if the name was online within the retention time.
    pub(super) fn holds(&self, hostname: &str, now: Timestamp) -> bool {
        self.until
            .pin()
            .get(hostname)
            .is_some_and(|entry| now < entry.until)
    }

    /// Records that a host name of a project has just gone offline. `share` is the limit of the
    /// project; `None` if it is the only one.
    pub(super) fn insert(
        &self,
        order: &mut Order,
        hostname: &str,
        (project, share): (&str, Option<usize>),
        now: Timestamp,
    ) {
        self.forget(order, hostname);
        let until = now.saturating_add(self.keep).unwrap_or(Timestamp::MAX);
        let place = order.add(hostname.into(), project);
        let entry = Entry {
            place,
            project: project.into(),
            until,
        };
        self.until.pin().insert(hostname.into(), entry);
        let beyond = share.and_then(|share| order.beyond(project, share));
        if let Some(beyond) = beyond.cloned() {
            self.forget(order, &beyond);
        }
        while let Some(oldest) = order.oldest().cloned() {
            let is_live = self.holds(&oldest, now);
            if is_live && order.len() <= self.capacity {
                break;
            }
            self.forget(order, &oldest);
        }
    }

    /// Removes a name that is online again.
    pub(super) fn forget(&self, order: &mut Order, hostname: &str) {
        if let Some(entry) = self.until.pin().remove(hostname) {
            order.remove(entry.place, &entry.project);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn a_name_is_stored_for_a_limited_time() {
        let memory = RecentHostnames::new(10, Duration::from_mins(10));
        let mut order = Order::default();
        memory.insert(&mut order, "a", ("p", None), at(0));
        assert!(memory.holds("a", at(599)));
        assert!(!memory.holds("a", at(600)));
        assert!(!memory.holds("b", at(1)));
    }

    #[test]
    fn the_oldest_name_is_dropped_when_memory_is_full() {
        let memory = RecentHostnames::new(2, Duration::from_mins(10));
        let mut order = Order::default();
        for (second, name) in [(0, "a"), (1, "b"), (2, "a"), (3, "c")] {
            memory.insert(&mut order, name, ("p", None), at(second));
        }
        assert!(memory.holds("a", at(4)), "added again, so newer than b");
        assert!(!memory.holds("b", at(4)));
        assert!(memory.holds("c", at(4)));
        assert_eq!(order.len(), 2);
        assert_eq!(memory.until.len(), 2);
    }

    #[test]
    fn a_flapping_name_uses_one_slot() {
        let memory = RecentHostnames::new(3, Duration::from_mins(10));
        let mut order = Order::default();
        memory.insert(&mut order, "other", ("p", None), at(0));
        for second in 1..100 {
            memory.insert(&mut order, "flaps", ("p", None), at(second));
            memory.forget(&mut order, "flaps");
        }
        assert!(memory.holds("other", at(100)));
        assert_eq!(order.len(), 1);
    }

    /// A project with many names that come and go does not displace those of other projects.
    #[test]
    fn a_project_displaces_its_own_names_first() {
        let memory = RecentHostnames::new(10, Duration::from_mins(10));
        let mut order = Order::default();
        memory.insert(&mut order, "theirs", ("quiet", Some(3)), at(0));
        for second in 1..100 {
            let name = format!("h{second}");
            memory.insert(&mut order, &name, ("loud", Some(3)), at(second));
        }
        assert!(memory.holds("theirs", at(100)));
        for (name, is_held) in [("h96", false), ("h97", true), ("h99", true)] {
            assert_eq!(memory.holds(name, at(100)), is_held, "{name}");
        }
        memory.forget(&mut order, "h98");
        memory.insert(&mut order, "h100", ("loud", Some(3)), at(100));
        assert!(
            memory.holds("h97", at(101)),
            "the slot of the name that is online again"
        );
        assert_eq!((order.len(), memory.until.len()), (4, 4));
        assert_eq!(order.projects(), 2);
    }

    #[test]
    fn expired_names_are_dropped_first() {
        let memory = RecentHostnames::new(10, Duration::from_secs(10));
        let mut order = Order::default();
        memory.insert(&mut order, "a", ("p", None), at(0));
        memory.insert(&mut order, "b", ("p", None), at(20));
        assert_eq!(order.len(), 1);
        assert_eq!(memory.until.len(), 1);
    }
}
