//! Retry delays: exponential back-off with full jitter.

use std::time::Duration;

/// The delays between attempts to reach a peer.
///
/// Each delay is drawn evenly from zero to a ceiling, and the ceiling doubles with each failure.
/// Processes that lost the same peer at the same moment therefore reconnect spread over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Creates a back-off whose first delay is at most `first` and whose delays never exceed `max`.
    pub fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            failures: 0,
        }
    }

    /// Returns the next delay. `random` is any 64 uniform bits.
    pub fn next_wait(&mut self, random: u64) -> Duration {
        let ceiling = self.ceiling();
        self.failures = self.failures.saturating_add(1);
        Self::draw(ceiling, random)
    }

    /// As [`Backoff::next_wait`], but the ceiling grows to `most` and stays there: for a failure
    /// that costs the peer nothing and usually ends soon.
    pub fn next_wait_within(&mut self, most: Duration, random: u64) -> Duration {
        if self.ceiling() < most {
            return self.next_wait(random);
        }
        Self::draw(most, random)
    }

    fn ceiling(&self) -> Duration {
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.max)
    }

    fn draw(ceiling: Duration, random: u64) -> Duration {
        let nanos = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
        // The high half of the product is `random` scaled to 0..=nanos. Unlike a division it has no
        // bias.
        let scaled = (u128::from(random) * (u128::from(nanos) + 1)) >> 64;
        Duration::from_nanos(u64::try_from(scaled).unwrap_or(nanos))
    }

    /// Resets the ceiling to that of the first delay, after an attempt led to a working channel.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

impl Default for Backoff {
    /// The first delay is at most 100 ms, so that a restart of the peer is hardly noticed. The
    /// maximum is 15 s, so that clients reconnect soon after a long outage, and ten thousand of
    /// them still make few attempts a second.
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(15))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_doubles_up_to_the_maximum() {
        let mut backoff = Backoff::default();
        let ceilings: Vec<_> = (0..10)
            .map(|_| backoff.next_wait(u64::MAX).as_millis())
            .collect();
        assert_eq!(
            ceilings,
            [
                100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 15_000, 15_000
            ]
        );
    }

    #[test]
    fn waits_are_spread_over_the_whole_range() {
        let wait = |random| Backoff::default().next_wait(random).as_millis();
        assert_eq!(wait(0), 0);
        assert_eq!(wait(u64::MAX / 2), 50);
        assert_eq!(wait(u64::MAX), 100);
    }

    #[test]
    fn a_ceiling_can_be_limited_and_grows_again_later() {
        let mut backoff = Backoff::default();
        let most = Duration::from_millis(400);
        let delays: Vec<_> = (0..50)
            .map(|_| backoff.next_wait_within(most, u64::MAX).as_millis())
            .collect();
        assert_eq!(delays.get(..4), Some(&[100, 200, 400, 400][..]));
        assert_eq!(delays.last(), Some(&400));
        assert_eq!(backoff.next_wait(u64::MAX).as_millis(), 400);
        assert_eq!(backoff.next_wait(u64::MAX).as_millis(), 800);
        assert_eq!(backoff.next_wait_within(most, u64::MAX), most);
    }

    #[test]
    fn a_reset_starts_again_and_many_failures_do_not_overflow() {
        let mut backoff = Backoff::default();
        for _ in 0..200 {
            assert!(backoff.next_wait(u64::MAX) <= Duration::from_secs(15));
        }
        backoff.reset();
        assert_eq!(backoff.next_wait(u64::MAX), Duration::from_millis(100));
    }
}
