//! The number of orders in an hour, and the turns of projects at it. Times are arguments.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The project that pays for an order; `None` for names of the operator.
pub(crate) type Owner = Option<Arc<str>>;

/// At most a number of orders in any hour.
#[derive(Debug)]
struct OrderBudget {
    per_hour: usize,
    /// Times of the last `per_hour` orders, oldest first.
    placed: VecDeque<Instant>,
}

impl OrderBudget {
    fn new(per_hour: usize) -> Self {
        Self {
            per_hour,
            placed: VecDeque::new(),
        }
    }

    /// The earliest time, not before `now`, at which another order may be placed.
    fn free_at(&self, now: Instant) -> Instant {
        let is_full = self.placed.len() >= self.per_hour;
        let oldest = self.placed.front().filter(|_| is_full);
        oldest.map_or(now, |oldest| now.max(*oldest + HOUR))
    }

    /// Counts an order at `now`, for which the budget has a place.
    fn spend(&mut self, now: Instant) {
        if self.placed.len() >= self.per_hour {
            self.placed.pop_front();
        }
        self.placed.push_back(now);
    }

    /// True if no order of the last hour counts.
    fn is_idle(&self, now: Instant) -> bool {
        self.placed.back().is_none_or(|last| *last + HOUR <= now)
    }
}

/// Names that wait for an order. All orders share one budget, and those of each project have another
/// one. Projects take turns: each one places one order and is then behind all others that wait.
#[derive(Debug)]
pub(crate) struct OrderTurns {
    all: OrderBudget,
    per_owner: usize,
    /// Owners with names that wait or with orders in the last hour.
    owners: HashMap<Owner, OwnerQueue>,
    /// The owners with names that wait, in the sequence of their turns.
    turns: BTreeMap<u64, Owner>,
    next_ticket: u64,
}

/// The names of an owner that wait.
#[derive(Debug)]
struct OwnerQueue {
    budget: OrderBudget,
    names: BTreeMap<u64, Arc<str>>,
    /// Key of the owner in `turns` while a name waits.
    turn: u64,
}

impl OrderTurns {
    /// At most `per_hour` orders in an hour, of which at most `per_owner` are for one project.
    pub(crate) fn new(per_hour: usize, per_owner: usize) -> Self {
        Self {
            all: OrderBudget::new(per_hour),
            per_owner,
            owners: HashMap::new(),
            turns: BTreeMap::new(),
            next_ticket: 0,
        }
    }

    /// Lets a name wait, after the others of its owner. The result removes it again.
    pub(crate) fn enter(&mut self, owner: &Owner, name: Arc<str>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let per_hour = match owner {
            Some(_) => self.per_owner,
            None => self.all.per_hour,
        };
        let queue = self.owners.entry(owner.clone());
        let queue = queue.or_insert_with(|| OwnerQueue {
            budget: OrderBudget::new(per_hour),
            names: BTreeMap::new(),
            turn: ticket,
        });
        if queue.names.is_empty() {
            queue.turn = ticket;
            self.turns.insert(ticket, owner.clone());
        }
        queue.names.insert(ticket, name);
        ticket
    }

    /// Removes a name that waits. It has used nothing of a budget.
    pub(crate) fn leave(&mut self, owner: &Owner, ticket: u64) {
        let Some(queue) = self.owners.get_mut(owner) else {
            return;
        };
        if queue.names.remove(&ticket).is_some() && queue.names.is_empty() {
            self.turns.remove(&queue.turn);
        }
    }

    /// Takes the name whose order may be placed now, and counts the order. Without one, the error is
    /// the time of the next one.
    pub(crate) fn take(&mut self, now: Instant) -> Result<Arc<str>, Option<Instant>> {
        if self.turns.is_empty() {
            return Err(None);
        }
        let free = self.all.free_at(now);
        if free > now {
            return Err(Some(free));
        }
        // The shared budget is spent before many owners have spent theirs, so that few are passed
        // over.
        let mut earliest: Option<Instant> = None;
        let mut next = None;
        for (turn, owner) in &self.turns {
            let Some(queue) = self.owners.get(owner) else {
                continue;
            };
            let free = queue.budget.free_at(now);
            if free <= now {
                next = Some((*turn, owner.clone()));
                break;
            }
            earliest = earliest.into_iter().chain([free]).min();
        }
        let Some((turn, owner)) = next else {
            return Err(earliest);
        };
        self.turns.remove(&turn);
        let taken = self.owners.get_mut(&owner).and_then(|queue| {
            let (_, name) = queue.names.pop_first()?;
            queue.budget.spend(now);
            if !queue.names.is_empty() {
                queue.turn = self.next_ticket;
                self.next_ticket += 1;
                self.turns.insert(queue.turn, owner.clone());
            }
            Some(name)
        });
        // An owner in `turns` has a name.
        let name = taken.ok_or(earliest)?;
        self.all.spend(now);
        self.owners
            .retain(|_, queue| !queue.names.is_empty() || !queue.budget.is_idle(now));
        Ok(name)
    }
}

const HOUR: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn owner(name: &str) -> Arc<str> {
        name.into()
    }

    /// Lets `count` names of an owner wait, which are `<owner>0`, `<owner>1` and so on.
    fn enter(turns: &mut OrderTurns, name: &str, count: usize) -> Vec<u64> {
        let names = (0..count).map(|number| format!("{name}{number}"));
        names
            .map(|full| turns.enter(&Some(owner(name)), full.as_str().into()))
            .collect()
    }

    /// All names whose orders may be placed now, and the time of the next one in minutes.
    fn all(turns: &mut OrderTurns, start: Instant, minutes: u32) -> (Vec<String>, Option<u64>) {
        let mut names = Vec::new();
        loop {
            match turns.take(start + minutes * MINUTE) {
                Ok(name) => names.push(name.to_string()),
                Err(next) => return (names, next.map(|next| (next - start).as_secs() / 60)),
            }
        }
    }

    #[test]
    fn orders_beyond_the_budget_of_an_hour_wait_in_their_sequence() {
        let start = Instant::now();
        let mut turns = OrderTurns::new(2, 2);
        enter(&mut turns, "a", 5);
        assert_eq!(turns.take(start).as_deref(), Ok("a0"));
        assert_eq!(turns.take(start + 10 * MINUTE).as_deref(), Ok("a1"));
        assert_eq!(all(&mut turns, start, 20), (vec![], Some(60)));
        assert_eq!(all(&mut turns, start, 60), (vec!["a2".into()], Some(70)));
        // Unused hours are not saved.
        let expected = vec!["a3".to_owned(), "a4".to_owned()];
        assert_eq!(all(&mut turns, start, 500), (expected, None));
    }

    #[test]
    fn one_project_does_not_spend_the_budget_of_all() {
        let start = Instant::now();
        let mut turns = OrderTurns::new(4, 2);
        enter(&mut turns, "a", 5);
        let two = vec!["a0".to_owned(), "a1".to_owned()];
        assert_eq!(all(&mut turns, start, 0), (two, Some(60)));
        enter(&mut turns, "b", 1);
        assert_eq!(all(&mut turns, start, 1), (vec!["b0".into()], Some(60)));
        let two = vec!["a2".to_owned(), "a3".to_owned()];
        assert_eq!(all(&mut turns, start, 60), (two, Some(120)));
    }

    #[test]
    fn projects_take_turns() {
        let start = Instant::now();
        let mut turns = OrderTurns::new(4, 3);
        enter(&mut turns, "a", 10);
        enter(&mut turns, "b", 2);
        enter(&mut turns, "c", 1);
        let (names, next) = all(&mut turns, start, 0);
        assert_eq!(names, ["a0", "b0", "c0", "a1"]);
        assert_eq!(next, Some(60));
        // A project that arrives later waits for one order of each other one at most.
        enter(&mut turns, "d", 1);
        let (names, _) = all(&mut turns, start, 60);
        assert_eq!(names, ["b1", "a2", "d0", "a3"]);
    }

    #[test]
    fn names_of_the_operator_have_the_whole_budget() {
        let start = Instant::now();
        let mut turns = OrderTurns::new(3, 1);
        for name in ["x", "y", "z"] {
            turns.enter(&None, name.into());
        }
        assert_eq!(all(&mut turns, start, 0).0, ["x", "y", "z"]);
    }

    /// Otherwise a project that adds and removes names delays the names of all others.
    #[test]
    fn names_that_were_removed_use_nothing() {
        let start = Instant::now();
        let mut turns = OrderTurns::new(1, 1);
        for ticket in enter(&mut turns, "a", 3) {
            turns.leave(&Some(owner("a")), ticket);
        }
        assert_eq!(all(&mut turns, start, 0), (vec![], None));
        enter(&mut turns, "b", 1);
        assert_eq!(all(&mut turns, start, 0), (vec!["b0".into()], None));
        enter(&mut turns, "c", 1);
        all(&mut turns, start, 60);
        assert_eq!(turns.owners.len(), 1, "only c ordered in the last hour");
    }

    proptest! {
        #[test]
        fn no_hour_has_more_orders_than_a_budget(
            per_hour in 1_usize..5,
            per_owner in 1_usize..4,
            steps in proptest::collection::vec((0_u64..4000, 0_usize..3), 1..60),
        ) {
            let mut now = Instant::now();
            let mut turns = OrderTurns::new(per_hour, per_owner);
            let mut placed: Vec<(Instant, String)> = Vec::new();
            for (delay, number) in steps {
                now += Duration::from_secs(delay);
                let name = ["a", "b", "c"][number];
                turns.enter(&Some(owner(name)), name.into());
                while let Ok(name) = turns.take(now) {
                    placed.push((now, name.to_string()));
                }
            }
            for window in placed.windows(per_hour + 1) {
                prop_assert!(window[per_hour].0 - window[0].0 >= HOUR);
            }
            for name in ["a", "b", "c"] {
                let own = placed.iter().filter(|(_, of)| of == name);
                let own: Vec<Instant> = own.map(|(at, _)| *at).collect();
                for window in own.windows(per_owner + 1) {
                    prop_assert!(window[per_owner] - window[0] >= HOUR);
                }
            }
        }
    }
}
