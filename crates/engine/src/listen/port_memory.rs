//! Ports of named tunnels that went offline recently, so that a reconnecting tunnel gets its port
//! again.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use super::tcp_ports::PortOwner;
use crate::limits::ArrivalOrder;

/// Ports of tunnels that went offline. When the capacity or the share of a project is exceeded, the
/// oldest entry is removed. Projects that exceed their share lose their own entries first.
#[derive(Debug)]
pub(super) struct PortMemory {
    entries: HashMap<PortOwner, Entry>,
    order: ArrivalOrder<PortOwner>,
    capacity: usize,
}

#[derive(Debug)]
struct Entry {
    number: u16,
    arrival: u64,
    until: Timestamp,
}

impl PortMemory {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            entries: HashMap::new(),
            order: ArrivalOrder::default(),
            capacity,
        }
    }

    /// The port that the owner had, if it has not expired.
    pub(super) fn get(&self, owner: &PortOwner, now: Timestamp) -> Option<u16> {
        let entry = self.entries.get(owner)?;
        (now < entry.until).then_some(entry.number)
    }

    /// Stores the port of the owner's tunnel, which just went offline. `share` is the limit of its
    /// project, or `None` if the engine has only one project.
    pub(super) fn store(
        &mut self,
        owner: &PortOwner,
        number: u16,
        share: Option<usize>,
        now: Timestamp,
    ) {
        self.forget(owner);
        let until = now.saturating_add(RETENTION).unwrap_or(Timestamp::MAX);
        let arrival = self.order.add(owner.clone(), &owner.0.project);
        let entry = Entry {
            number,
            arrival,
            until,
        };
        self.entries.insert(owner.clone(), entry);
        let beyond = share.and_then(|share| self.order.beyond(&owner.0.project, share));
        if let Some(beyond) = beyond.cloned() {
            self.forget(&beyond);
        }
        while let Some(oldest) = self.order.oldest().cloned() {
            let is_valid = self.get(&oldest, now).is_some();
            if is_valid && self.order.len() <= self.capacity {
                break;
            }
            self.forget(&oldest);
        }
    }

    /// Removes the entry of a tunnel that is online again.
    pub(super) fn forget(&mut self, owner: &PortOwner) {
        if let Some(entry) = self.entries.remove(owner) {
            self.order.remove(entry.arrival, &owner.0.project);
        }
    }
}

/// Retention of an entry, as for offline host names. It is longer than an agent's slowest
/// reconnect.
const RETENTION: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Identity;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn owner(project: &str, name: &str) -> PortOwner {
        let subject = credentials::Identity::User("ann".to_owned());
        let name = name.parse().unwrap();
        (Identity::new(project, &subject), Some(name))
    }

    #[test]
    fn a_port_stays_reserved_until_it_expires() {
        let mut memory = PortMemory::new(10);
        let (db, ssh) = (owner("p", "db"), owner("p", "ssh"));
        memory.store(&db, 20_000, None, at(0));
        assert_eq!(memory.get(&db, at(599)), Some(20_000));
        assert_eq!(memory.get(&db, at(600)), None);
        assert_eq!(memory.get(&ssh, at(1)), None);
        memory.store(&ssh, 20_001, None, at(600));
        assert_eq!(memory.entries.len(), 1, "the expired entry was removed");
        memory.forget(&ssh);
        assert_eq!((memory.entries.len(), memory.order.len()), (0, 0));
    }

    #[test]
    fn a_project_loses_its_own_ports_first() {
        let mut memory = PortMemory::new(10);
        let theirs = owner("quiet", "db");
        memory.store(&theirs, 20_000, Some(3), at(0));
        for number in 1..100 {
            let own = owner("loud", &format!("t{number}"));
            memory.store(&own, 20_000 + number, Some(3), at(1));
        }
        assert_eq!(memory.get(&theirs, at(2)), Some(20_000));
        assert_eq!(memory.entries.len(), 4);
        assert_eq!(memory.get(&owner("loud", "t96"), at(2)), None);
        assert_eq!(memory.get(&owner("loud", "t97"), at(2)), Some(20_097));
    }

    #[test]
    fn the_oldest_entry_is_removed_at_capacity() {
        let mut memory = PortMemory::new(2);
        for (number, name) in [(1, "a"), (2, "b"), (1, "a"), (3, "c")] {
            memory.store(&owner("p", name), number, None, at(0));
        }
        let remembered = ["a", "b", "c"].map(|name| memory.get(&owner("p", name), at(1)));
        assert_eq!(remembered, [Some(1), None, Some(3)]);
    }
}
