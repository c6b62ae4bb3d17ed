//! A token bucket in one atomic: the generic cell rate algorithm (GCRA, ITU-T I.371).
//!
//! The state is the theoretical arrival time, at which the bucket will be full again. Taking units
//! moves it into the future. The rate is not part of the state and may change at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nanoseconds since some moment that one bucket always uses.
pub(crate) type Nanos = u64;

/// The rate at which a bucket fills, and its capacity as a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    per_second: u64,
    burst: Duration,
}

/// A bucket, initially full. A bucket is used either with `take` or with `reserve`.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    theoretical_arrival: AtomicU64,
}

const SECOND: u64 = 1_000_000_000;

impl Rate {
    /// A rate of `per_second` units. The capacity is the units of the time `burst`, at least one
    /// unit.
    pub(crate) const fn new(per_second: u64, burst: Duration) -> Self {
        Self { per_second, burst }
    }

    pub(crate) fn per_second(self) -> u64 {
        self.per_second
    }

    /// Time in which so many units become available, rounded up so that no unit is free; `None` if
    /// they never do.
    fn time_for(self, units: u64) -> Option<Nanos> {
        let rate = u128::from(self.per_second);
        let nanos = u128::from(units) * u128::from(SECOND) + rate.checked_sub(1)?;
        u64::try_from(nanos.checked_div(rate)?).ok()
    }

    /// Longest time until the bucket is full.
    fn depth(self) -> Option<Nanos> {
        let burst = u64::try_from(self.burst.as_nanos()).ok()?;
        Some(burst.max(self.time_for(1)?))
    }
}

impl Bucket {
    /// Takes one unit, or nothing.
    ///
    /// # Errors
    /// The time until a unit is available, if no other caller takes one. At a rate of zero there
    /// never is one: then it is a second.
    pub(crate) fn take(&self, rate: Rate, now: Nanos) -> Result<(), Duration> {
        let never = Duration::from_secs(1);
        let cost = rate.time_for(1).ok_or(never)?;
        // In whole units: the cost of a unit is rounded up, which must not cost the last unit.
        let units = u128::from(rate.per_second) * rate.burst.as_nanos() / u128::from(SECOND);
        let units = u64::try_from(units).unwrap_or(u64::MAX).max(1);
        let empty = now.saturating_add(cost.saturating_mul(units));
        // Further away than for an empty bucket: the clock was set back, or the rate was different.
        // The bucket is empty from now on.
        if self.theoretical_arrival.load(Ordering::Relaxed) > empty {
            self.theoretical_arrival.fetch_min(empty, Ordering::Relaxed);
        }
        let taken = self.update(|arrival| {
            let new_arrival = arrival.max(now).saturating_add(cost);
            match new_arrival.saturating_sub(empty) {
                0 => Ok(new_arrival),
                short => Err(Duration::from_nanos(short)),
            }
        });
        taken.map(drop)
    }

    /// Takes so many units, available or not. Returns the time that the caller has to wait until
    /// they are available. Reservations are served in order. `None`: they never become available.
    pub(crate) fn reserve(&self, units: u64, rate: Rate, now: Nanos) -> Option<Duration> {
        let (cost, depth) = rate.time_for(units).zip(rate.depth())?;
        let new_arrival = self.update(|arrival| Ok::<_, ()>(arrival.max(now).saturating_add(cost)));
        let short = new_arrival.ok()?.saturating_sub(now.saturating_add(depth));
        Some(Duration::from_nanos(short))
    }

    /// Returns one unit that was taken.
    pub(crate) fn refund_one(&self, rate: Rate) {
        if let Some(cost) = rate.time_for(1) {
            self.refund_time(cost);
        }
    }

    /// Returns units that were reserved and not used. The time is rounded down, so that it is never
    /// more than what was taken.
    pub(crate) fn refund(&self, units: u64, rate: Rate) {
        if let Some(cost) = rate.time_for(units) {
            self.refund_time(cost.saturating_sub(1));
        }
    }

    /// Moves the arrival time back. One in the past counts as now, so a refund has a limit.
    fn refund_time(&self, by: Nanos) {
        self.update(|arrival| Ok::<_, ()>(arrival.saturating_sub(by)))
            .ok();
    }

    fn update<E>(&self, change: impl Fn(Nanos) -> Result<Nanos, E>) -> Result<Nanos, E> {
        let mut current = self.theoretical_arrival.load(Ordering::Relaxed);
        loop {
            let then = change(current)?;
            let swapped = self.theoretical_arrival.compare_exchange_weak(
                current,
                then,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swapped {
                Ok(_) => return Ok(then),
                Err(other) => current = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Units that a rate allows within a time: a full bucket, and the units that become available.
    fn allowed(rate: Rate, time: Nanos) -> u128 {
        let time = u128::from(time) + rate.burst.as_nanos();
        let whole = time * u128::from(rate.per_second) / u128::from(SECOND);
        whole.max(
            1 + u128::from(rate.per_second) * (time - rate.burst.as_nanos()) / u128::from(SECOND),
        )
    }

    fn narrow(number: u128) -> u64 {
        number.try_into().unwrap()
    }

    proptest! {
        /// In any period no more than a full bucket and the units of that period can be taken.
        #[test]
        fn takes_never_exceed_the_burst_and_the_rate(
            per_second in 1_u64..100_000,
            burst in 1_u64..2_000,
            steps in vec((0_u64..5_000_000, 1_u64..20), 1..100),
        ) {
            let rate = Rate::new(per_second, Duration::from_millis(burst));
            let bucket = Bucket::default();
            let mut now = 1_000_000_000_000;
            let mut passed = vec![];
            for (wait, units) in steps {
                now += wait;
                let units = (0..units).filter(|_| bucket.take(rate, now).is_ok()).count();
                passed.push((now, units as u128));
            }
            for (from, (begin, _)) in passed.iter().enumerate() {
                let mut sum = 0;
                for (at, units) in passed.iter().skip(from) {
                    sum += units;
                    prop_assert!(sum <= allowed(rate, at - begin), "{sum} within {}", at - begin);
                }
            }
        }

        /// The same for callers that wait for their reservation and return unused units.
        #[test]
        fn reservations_never_exceed_the_burst_and_the_rate(
            per_second in 1_u64..1_000_000,
            burst in 1_u64..500,
            steps in vec((0_u64..50_000_000, 1_u64..5_000, 0_u64..5_000), 1..200),
        ) {
            let rate = Rate::new(per_second, Duration::from_millis(burst));
            let bucket = Bucket::default();
            let mut now = 1_000_000_000_000;
            let mut passed = vec![];
            for (wait, units, unused) in steps {
                // At most the capacity of a bucket: available immediately or later, never early.
                let units = units.min(narrow(allowed(rate, 0)).max(1));
                let unused = unused.min(units);
                now += wait;
                now += narrow(bucket.reserve(units, rate, now).unwrap().as_nanos());
                bucket.refund(unused, rate);
                passed.push((now, u128::from(units - unused)));
            }
            for (from, (begin, _)) in passed.iter().enumerate() {
                let mut sum = 0;
                for (at, units) in passed.iter().skip(from) {
                    sum += units;
                    prop_assert!(sum <= allowed(rate, at - begin), "{sum} within {}", at - begin);
                }
            }
        }

        /// Callers that keep to the rate are never refused.
        #[test]
        fn callers_within_the_rate_are_never_refused(
            per_second in 1_u64..1_000_000,
            count in 1_u64..500,
        ) {
            let rate = Rate::new(per_second, Duration::from_secs(1));
            let bucket = Bucket::default();
            let mut now = 5_000_000_000;
            for _ in 0..count {
                prop_assert_eq!(bucket.take(rate, now), Ok(()));
                now += SECOND.div_ceil(per_second);
            }
        }
    }

    #[test]
    fn a_refusal_has_the_time_until_the_next_unit() {
        let rate = Rate::new(2, Duration::from_secs(1));
        let bucket = Bucket::default();
        let now = 10 * SECOND;
        for _ in 0..2 {
            bucket.take(rate, now).unwrap();
        }
        let wait = bucket.take(rate, now).unwrap_err();
        assert_eq!(wait, Duration::from_millis(500));
        assert_eq!(bucket.take(rate, now + SECOND / 2), Ok(()));
    }

    #[test]
    fn refunded_units_can_be_taken_again() {
        let rate = Rate::new(3, Duration::from_secs(1));
        let bucket = Bucket::default();
        for _ in 0..100 {
            bucket.take(rate, SECOND).unwrap();
            bucket.refund_one(rate);
        }
        for _ in 0..3 {
            bucket.take(rate, SECOND).unwrap();
        }
        bucket.take(rate, SECOND).unwrap_err();
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_refuse_all_callers() {
        let rate = Rate::new(10, Duration::from_secs(1));
        let bucket = Bucket::default();
        bucket.take(rate, 1_000_000 * SECOND).unwrap();
        let now = 10 * SECOND;
        bucket.take(rate, now).unwrap_err();
        bucket.take(rate, now + SECOND / 10).unwrap();
        bucket.take(rate, now + SECOND / 10).unwrap_err();
    }

    #[test]
    fn nothing_passes_at_a_rate_of_zero() {
        let rate = Rate::new(0, Duration::from_secs(1));
        let bucket = Bucket::default();
        bucket.take(rate, SECOND).unwrap_err();
        assert_eq!(bucket.reserve(1, rate, SECOND), None);
    }

    #[test]
    fn concurrent_takes_never_exceed_the_bucket() {
        let rate = Rate::new(1000, Duration::from_secs(1));
        let bucket = Bucket::default();
        let taken = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        if bucket.take(rate, SECOND).is_ok() {
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), 1000);
    }
}
