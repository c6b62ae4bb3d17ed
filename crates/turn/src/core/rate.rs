//! Rate limits in bytes per second: of an allocation, of a user, of a project. All workers share
//! them.
//!
//! This is GCRA: each relayed byte moves the theoretical arrival time forward. If that time is
//! more than [`BURST`] in the future, a connection waits, and a datagram is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Millis;

/// Maximum bytes per second, in both directions together; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// Limit of one allocation.
    pub per_allocation: Option<u32>,
    /// Limit of all allocations of one holder of credentials in one project.
    pub per_user: Option<u32>,
    /// Limit of all allocations of one project.
    pub per_project: Option<u32>,
}

/// Permitted burst: the bytes that the rate permits in this time.
const BURST: Millis = Millis::from_seconds(1);

/// One rate limit.
#[derive(Debug)]
pub(super) struct Bucket {
    bytes_per_second: u64,
    /// Theoretical arrival time of the next byte (GCRA), in nanoseconds since the start.
    theoretical_arrival: AtomicU64,
}

impl Bucket {
    /// Starts without a burst, so that new allocations do not circumvent the limit.
    pub(super) fn new(bytes_per_second: u32, now: Millis) -> Self {
        Self {
            bytes_per_second: u64::from(bytes_per_second).max(1),
            theoretical_arrival: AtomicU64::new(nanoseconds(now.after(BURST))),
        }
    }

    /// Time until data may be relayed; `None` for immediately.
    fn wait(&self, now: Millis) -> Option<Millis> {
        let most = nanoseconds(now.after(BURST));
        let ahead = self.theoretical_arrival.load(Ordering::Relaxed);
        let wait = ahead.saturating_sub(most).div_ceil(1_000_000);
        (wait > 0).then_some(Millis(wait))
    }

    fn charge(&self, now: Millis, bytes: usize) {
        self.theoretical_arrival
            .fetch_max(nanoseconds(now), Ordering::Relaxed);
        let price = u128::from(bytes as u64) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let price = u64::try_from(price).unwrap_or(u64::MAX);
        self.theoretical_arrival.fetch_add(price, Ordering::Relaxed);
    }
}

fn nanoseconds(time: Millis) -> u64 {
    time.0.saturating_mul(1_000_000)
}

/// The rate limits of one allocation. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    buckets: Option<Arc<[Option<Arc<Bucket>>; 3]>>,
}

impl Rates {
    /// The limits of allocation, user and project.
    pub(super) fn new(buckets: [Option<Arc<Bucket>>; 3]) -> Self {
        let is_any = buckets.iter().any(Option::is_some);
        Self {
            buckets: is_any.then(|| Arc::new(buckets)),
        }
    }

    /// True if there is any limit.
    pub fn is_limited(&self) -> bool {
        self.buckets.is_some()
    }

    /// Checks if a datagram of this many bytes may be relayed now, and counts it in this case.
    pub fn admit(&self, now: Millis, bytes: usize) -> bool {
        let is_free = self.buckets().all(|bucket| bucket.wait(now).is_none());
        if is_free {
            self.charge(now, bytes);
        }
        is_free
    }

    /// Time until a connection may be read; `None` for immediately.
    pub fn wait(&self, now: Millis) -> Option<Millis> {
        self.buckets().filter_map(|bucket| bucket.wait(now)).max()
    }

    /// Counts bytes that were read from a connection.
    pub fn charge(&self, now: Millis, bytes: usize) {
        self.buckets().for_each(|bucket| bucket.charge(now, bytes));
    }

    fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        let all = self.buckets.iter().flat_map(|buckets| buckets.iter());
        all.filter_map(Option::as_deref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(per_second: [Option<u32>; 3]) -> Rates {
        let bucket = |rate| Arc::new(Bucket::new(rate, Millis(5000)));
        Rates::new(per_second.map(|rate| rate.map(bucket)))
    }

    /// Bytes that pass in a second, with one datagram of 100 bytes each millisecond.
    fn pass(rates: &Rates, second: u64) -> usize {
        let tried = (0..1000).map(|more| Millis(second * 1000 + more));
        tried.filter(|now| rates.admit(*now, 100)).count() * 100
    }

    #[test]
    fn the_long_term_average_is_the_rate() {
        let rates = rates([Some(10_000), None, None]);
        let passed: usize = (5..15).map(|second| pass(&rates, second)).sum();
        assert!((100_000..=100_200).contains(&passed), "{passed}");
    }

    #[test]
    fn a_silent_allocation_saves_one_second_at_most() {
        let rates = rates([None, Some(10_000), None]);
        let burst = |at| (0..1000).filter(|_| rates.admit(Millis(at), 100)).count() * 100;
        assert_eq!(burst(5000), 100, "nothing is saved at the start");
        assert_eq!(burst(60_000), 10_100);
        assert_eq!(burst(60_000), 0);
        assert_eq!(burst(60_500), 5_000);
    }

    #[test]
    fn the_lowest_limit_applies_and_a_dropped_datagram_costs_nothing() {
        let rates = rates([Some(1_000_000), Some(2_000), Some(500_000)]);
        let passed: usize = (5..15).map(|second| pass(&rates, second)).sum();
        assert!((20_000..=20_200).contains(&passed), "{passed}");
        let project = Rates::new([None, None, rates.buckets.unwrap()[2].clone()]);
        assert_eq!(project.wait(Millis(15_000)), None);
    }

    #[test]
    fn a_connection_waits_for_the_time_it_was_ahead() {
        let rates = rates([Some(1_000), None, None]);
        rates.charge(Millis(6000), 3_000);
        assert_eq!(rates.wait(Millis(6000)), Some(Millis(2000)));
        assert_eq!(rates.wait(Millis(7999)), Some(Millis(1)));
        assert_eq!(rates.wait(Millis(8000)), None);
        let free = Rates::default();
        free.charge(Millis(0), usize::MAX);
        assert!(free.admit(Millis(0), 9) && free.wait(Millis(0)).is_none() && !free.is_limited());
    }
}
