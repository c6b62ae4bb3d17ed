//! How many bytes a second are relayed at most: of an allocation, of a user, of a project. One
//! count for all workers.
//!
//! Each byte takes its time, and what was relayed is paid for up to some moment. Who is more than
//! [`BURST`] in advance waits (a connection) or loses the packet (a datagram).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Millis;

/// Bytes a second that are relayed at most, both ways together; `None`: as many as there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// By one allocation.
    pub per_allocation: Option<u32>,
    /// By all allocations of one holder of credentials in one project.
    pub per_user: Option<u32>,
    /// By all allocations of one project.
    pub per_project: Option<u32>,
}

/// What may be relayed in a burst, as the time that it takes at the rate.
const BURST: Millis = Millis::from_seconds(1);

/// One rate.
#[derive(Debug)]
pub(super) struct Bucket {
    bytes_per_second: u64,
    /// Nanoseconds since the start.
    paid_until: AtomicU64,
}

impl Bucket {
    /// Nothing is saved up: who gives up an allocation and makes another has gained nothing.
    pub(super) fn new(bytes_per_second: u32, now: Millis) -> Self {
        Self {
            bytes_per_second: u64::from(bytes_per_second).max(1),
            paid_until: AtomicU64::new(nanoseconds(now.after(BURST))),
        }
    }

    /// How long until something may be relayed; `None`: now.
    fn wait(&self, now: Millis) -> Option<Millis> {
        let most = nanoseconds(now.after(BURST));
        let ahead = self.paid_until.load(Ordering::Relaxed);
        let wait = ahead.saturating_sub(most).div_ceil(1_000_000);
        (wait > 0).then_some(Millis(wait))
    }

    fn pay(&self, now: Millis, bytes: usize) {
        self.paid_until
            .fetch_max(nanoseconds(now), Ordering::Relaxed);
        let price = u128::from(bytes as u64) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let price = u64::try_from(price).unwrap_or(u64::MAX);
        self.paid_until.fetch_add(price, Ordering::Relaxed);
    }
}

fn nanoseconds(time: Millis) -> u64 {
    time.0.saturating_mul(1_000_000)
}

/// The rates that hold for one allocation. Cheap to clone; clones are one.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    buckets: Option<Arc<[Option<Arc<Bucket>>; 3]>>,
}

impl Rates {
    /// Of allocation, user and project.
    pub(super) fn new(buckets: [Option<Arc<Bucket>>; 3]) -> Self {
        let is_any = buckets.iter().any(Option::is_some);
        Self {
            buckets: is_any.then(|| Arc::new(buckets)),
        }
    }

    /// Whether there is any limit.
    pub fn is_limited(&self) -> bool {
        self.buckets.is_some()
    }

    /// Whether a datagram of this many bytes may be relayed now; it is counted then.
    pub fn admit(&self, now: Millis, bytes: usize) -> bool {
        let is_free = self.buckets().all(|bucket| bucket.wait(now).is_none());
        if is_free {
            self.pay(now, bytes);
        }
        is_free
    }

    /// How long a connection has to wait until it may be read; `None`: it may be now.
    pub fn wait(&self, now: Millis) -> Option<Millis> {
        self.buckets().filter_map(|bucket| bucket.wait(now)).max()
    }

    /// Counts what was read of a connection.
    pub fn pay(&self, now: Millis, bytes: usize) {
        self.buckets().for_each(|bucket| bucket.pay(now, bytes));
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

    /// Datagrams of 100 bytes that pass in a second, one tried each millisecond.
    fn pass(rates: &Rates, second: u64) -> usize {
        let tried = (0..1000).map(|more| Millis(second * 1000 + more));
        tried.filter(|now| rates.admit(*now, 100)).count() * 100
    }

    #[test]
    fn what_is_relayed_in_the_long_run_is_the_rate() {
        let rates = rates([Some(10_000), None, None]);
        let passed: usize = (5..15).map(|second| pass(&rates, second)).sum();
        assert!((100_000..=100_200).contains(&passed), "{passed}");
    }

    #[test]
    fn who_was_silent_has_a_second_saved_and_no_more() {
        let rates = rates([None, Some(10_000), None]);
        let burst = |at| (0..1000).filter(|_| rates.admit(Millis(at), 100)).count() * 100;
        assert_eq!(burst(5000), 100, "nothing is saved at the start");
        assert_eq!(burst(60_000), 10_100);
        assert_eq!(burst(60_000), 0);
        assert_eq!(burst(60_500), 5_000);
    }

    #[test]
    fn the_lowest_of_the_limits_counts_and_a_refused_datagram_costs_nothing() {
        let rates = rates([Some(1_000_000), Some(2_000), Some(500_000)]);
        let passed: usize = (5..15).map(|second| pass(&rates, second)).sum();
        assert!((20_000..=20_200).contains(&passed), "{passed}");
        let project = Rates::new([None, None, rates.buckets.unwrap()[2].clone()]);
        assert_eq!(project.wait(Millis(15_000)), None);
    }

    #[test]
    fn a_connection_waits_for_as_long_as_it_was_ahead() {
        let rates = rates([Some(1_000), None, None]);
        rates.pay(Millis(6000), 3_000);
        assert_eq!(rates.wait(Millis(6000)), Some(Millis(2000)));
        assert_eq!(rates.wait(Millis(7999)), Some(Millis(1)));
        assert_eq!(rates.wait(Millis(8000)), None);
        let free = Rates::default();
        free.pay(Millis(0), usize::MAX);
        assert!(free.admit(Millis(0), 9) && free.wait(Millis(0)).is_none() && !free.is_limited());
    }
}
