//! The memory of hostnames that were online a short while ago.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

/// Hostnames seen lately, oldest forgotten first. Writers hold the live state's lock and own
/// `order`; readers look into `until` and lock nothing.
#[derive(Debug)]
pub(super) struct Remembered {
    until: papaya::HashMap<Box<str>, Entry>,
    capacity: usize,
    keep: Duration,
}

/// The order in which names are forgotten; lives under the owner's lock.
#[derive(Debug, Default)]
pub(super) struct Order {
    next: u64,
    names: BTreeMap<u64, Box<str>>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    place: u64,
    until: Timestamp,
}

impl Remembered {
    pub(super) fn new(capacity: usize, keep: Duration) -> Self {
        Self {
            until: papaya::HashMap::new(),
            capacity,
            keep,
        }
    }

    /// Whether the name was online within the time of memory.
    pub(super) fn holds(&self, hostname: &str, now: Timestamp) -> bool {
        self.until
            .pin()
            .get(hostname)
            .is_some_and(|entry| now < entry.until)
    }

    /// Notes that a hostname went offline just now.
    pub(super) fn note(&self, order: &mut Order, hostname: &str, now: Timestamp) {
        self.forget(order, hostname);
        let until = now.saturating_add(self.keep).unwrap_or(Timestamp::MAX);
        let place = order.next;
        order.next += 1;
        let names = self.until.pin();
        names.insert(hostname.into(), Entry { place, until });
        order.names.insert(place, hostname.into());
        while let Some((place, oldest)) = order.names.pop_first() {
            let expired = names.get(&oldest).is_none_or(|entry| entry.until <= now);
            if !expired && order.names.len() < self.capacity {
                order.names.insert(place, oldest);
                break;
            }
            names.remove(&oldest);
        }
    }

    /// Drops a name that is online again.
    pub(super) fn forget(&self, order: &mut Order, hostname: &str) {
        if let Some(entry) = self.until.pin().remove(hostname) {
            order.names.remove(&entry.place);
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
    fn a_name_is_remembered_for_its_time_and_no_longer() {
        let memory = Remembered::new(10, Duration::from_mins(10));
        let mut order = Order::default();
        memory.note(&mut order, "a", at(0));
        assert!(memory.holds("a", at(599)));
        assert!(!memory.holds("a", at(600)));
        assert!(!memory.holds("b", at(1)));
    }

    #[test]
    fn the_oldest_is_forgotten_when_memory_is_full() {
        let memory = Remembered::new(2, Duration::from_mins(10));
        let mut order = Order::default();
        for (second, name) in [(0, "a"), (1, "b"), (2, "a"), (3, "c")] {
            memory.note(&mut order, name, at(second));
        }
        assert!(memory.holds("a", at(4)), "noted again, so younger than b");
        assert!(!memory.holds("b", at(4)));
        assert!(memory.holds("c", at(4)));
        assert_eq!(order.names.len(), 2);
        assert_eq!(memory.until.len(), 2);
    }

    #[test]
    fn a_flapping_name_takes_one_place() {
        let memory = Remembered::new(3, Duration::from_mins(10));
        let mut order = Order::default();
        memory.note(&mut order, "other", at(0));
        for second in 1..100 {
            memory.note(&mut order, "flaps", at(second));
            memory.forget(&mut order, "flaps");
        }
        assert!(memory.holds("other", at(100)));
        assert_eq!(order.names.len(), 1);
    }

    #[test]
    fn what_expired_makes_room_first() {
        let memory = Remembered::new(10, Duration::from_secs(10));
        let mut order = Order::default();
        memory.note(&mut order, "a", at(0));
        memory.note(&mut order, "b", at(20));
        assert_eq!(order.names.len(), 1);
        assert_eq!(memory.until.len(), 1);
    }
}
