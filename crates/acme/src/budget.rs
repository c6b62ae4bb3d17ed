//! The number of orders in an hour. Times are arguments.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// At most a number of orders in any hour. Each one reserves its time, so that those that have to
/// wait keep their sequence and none of them asks twice.
#[derive(Debug)]
pub(crate) struct OrderBudget {
    per_hour: usize,
    /// The last `per_hour` reserved times, oldest first. Later ones may be in the future.
    reserved: VecDeque<Instant>,
    /// Reserved times that were given back, each at most once.
    returned: BinaryHeap<Reverse<Instant>>,
}

impl OrderBudget {
    pub(crate) fn new(per_hour: usize) -> Self {
        Self {
            per_hour,
            reserved: VecDeque::new(),
            returned: BinaryHeap::new(),
        }
    }

    /// The earliest time, not before `now`, at which another order may be placed.
    pub(crate) fn reserve(&mut self, now: Instant) -> Instant {
        // Each returned time is earlier than any new one. One that has passed is lost.
        while let Some(Reverse(at)) = self.returned.pop() {
            if at >= now {
                return at;
            }
        }
        let oldest = if self.reserved.len() < self.per_hour {
            None
        } else {
            self.reserved.pop_front()
        };
        let at = oldest.map_or(now, |oldest| now.max(oldest + HOUR));
        self.reserved.push_back(at);
        at
    }

    /// Gives back a reserved time at which no order will be placed. The next order that can be placed
    /// then gets it. So names that are added and removed again do not delay the others.
    pub(crate) fn give_back(&mut self, at: Instant) {
        self.returned.push(Reverse(at));
    }
}

const HOUR: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn orders_beyond_the_budget_of_an_hour_wait_in_their_sequence() {
        let now = Instant::now();
        let mut budget = OrderBudget::new(2);
        let mut reserve = |minutes: u64| {
            let at = budget.reserve(now + Duration::from_mins(minutes));
            (at - now).as_secs() / 60
        };
        assert_eq!([0, 10, 20, 20, 20].map(&mut reserve), [0, 10, 60, 70, 120]);
        assert_eq!(reserve(300), 300, "unused hours are not saved");
        assert_eq!([300, 300].map(&mut reserve), [300, 360]);
    }

    #[test]
    fn a_returned_time_is_used_by_the_next_order() {
        let now = Instant::now();
        let minute = Duration::from_mins(1);
        let mut budget = OrderBudget::new(1);
        assert_eq!(budget.reserve(now), now);
        assert_eq!(budget.reserve(now), now + 60 * minute);
        assert_eq!(budget.reserve(now), now + 120 * minute);
        budget.give_back(now + 60 * minute);
        budget.give_back(now);
        assert_eq!(budget.reserve(now + minute), now + 60 * minute);
        assert_eq!(budget.reserve(now + minute), now + 180 * minute);
        budget.give_back(now + 120 * minute);
        // The returned time has passed.
        assert_eq!(budget.reserve(now + 121 * minute), now + 240 * minute);
    }

    proptest! {
        #[test]
        fn no_hour_has_more_orders_than_the_budget(
            per_hour in 1_usize..5,
            delays in proptest::collection::vec(0_u64..4000, 1..60),
        ) {
            let start = Instant::now();
            let mut now = start;
            let mut budget = OrderBudget::new(per_hour);
            let mut times = Vec::new();
            for delay in delays {
                now += Duration::from_secs(delay);
                times.push(budget.reserve(now));
            }
            prop_assert!(times.is_sorted());
            for window in times.windows(per_hour + 1) {
                prop_assert!(window[per_hour] - window[0] >= HOUR);
            }
        }
    }
}
