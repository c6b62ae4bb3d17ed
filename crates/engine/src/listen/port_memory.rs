//! The ports that named tunnels had a short while ago, so that one that reconnects gets its port
//! again.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use super::tcp_ports::PortOwner;
use crate::limits::ArrivalOrder;

/// Ports of tunnels that went offline. The oldest is forgotten first, of a project that has more
/// than its share before others'.
#[derive(Debug)]
pub(super) struct PortMemory {
    entries: HashMap<PortOwner, Entry>,
    order: ArrivalOrder<PortOwner>,
    capacity: usize,
}

#[derive(Debug)]
struct Entry {
    number: u16,
    place: u64,
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

    /// The port that a holder had, within the time of memory.
    pub(super) fn get(&self, holder: &PortOwner, now: Timestamp) -> Option<u16> {
        let entry = self.entries.get(holder)?;
        (now < entry.until).then_some(entry.number)
    }

    /// Notes that the holder's tunnel on a port went offline just now. `share` is how many its
    /// project may have; `None` where it is the only one.
    pub(super) fn note(
        &mut self,
        holder: &PortOwner,
        number: u16,
        share: Option<usize>,
        now: Timestamp,
    ) {
        self.forget(holder);
        let until = now.saturating_add(KEEP).unwrap_or(Timestamp::MAX);
        let place = self.order.add(holder.clone(), &holder.0.project);
        let entry = Entry {
            number,
            place,
            until,
        };
        self.entries.insert(holder.clone(), entry);
        let beyond = share.and_then(|share| self.order.beyond(&holder.0.project, share));
        if let Some(beyond) = beyond.cloned() {
            self.forget(&beyond);
        }
        while let Some(oldest) = self.order.oldest().cloned() {
            let holds = self.get(&oldest, now).is_some();
            if holds && self.order.len() <= self.capacity {
                break;
            }
            self.forget(&oldest);
        }
    }

    /// Drops what is online again.
    pub(super) fn forget(&mut self, holder: &PortOwner) {
        if let Some(entry) = self.entries.remove(holder) {
            self.order.remove(entry.place, &holder.0.project);
        }
    }
}

/// As long as a hostname counts as offline: longer than an agent's slowest reconnect.
const KEEP: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Identity;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn holder(project: &str, name: &str) -> PortOwner {
        let subject = credentials::Identity::User("ann".to_owned());
        let name = name.parse().unwrap();
        (Identity::new(project, &subject), Some(name))
    }

    #[test]
    fn a_port_is_remembered_for_its_time_and_no_longer() {
        let mut memory = PortMemory::new(10);
        let (db, ssh) = (holder("p", "db"), holder("p", "ssh"));
        memory.note(&db, 20_000, None, at(0));
        assert_eq!(memory.get(&db, at(599)), Some(20_000));
        assert_eq!(memory.get(&db, at(600)), None);
        assert_eq!(memory.get(&ssh, at(1)), None);
        memory.note(&ssh, 20_001, None, at(600));
        assert_eq!(memory.entries.len(), 1, "what expired makes room");
        memory.forget(&ssh);
        assert_eq!((memory.entries.len(), memory.order.len()), (0, 0));
    }

    #[test]
    fn a_project_forgets_its_own_ports_first() {
        let mut memory = PortMemory::new(10);
        let theirs = holder("quiet", "db");
        memory.note(&theirs, 20_000, Some(3), at(0));
        for number in 1..100 {
            let own = holder("loud", &format!("t{number}"));
            memory.note(&own, 20_000 + number, Some(3), at(1));
        }
        assert_eq!(memory.get(&theirs, at(2)), Some(20_000));
        assert_eq!(memory.entries.len(), 4);
        assert_eq!(memory.get(&holder("loud", "t96"), at(2)), None);
        assert_eq!(memory.get(&holder("loud", "t97"), at(2)), Some(20_097));
    }

    #[test]
    fn the_oldest_is_forgotten_when_memory_is_full() {
        let mut memory = PortMemory::new(2);
        for (number, name) in [(1, "a"), (2, "b"), (1, "a"), (3, "c")] {
            memory.note(&holder("p", name), number, None, at(0));
        }
        let known = ["a", "b", "c"].map(|name| memory.get(&holder("p", name), at(1)));
        assert_eq!(known, [Some(1), None, Some(3)]);
    }
}
