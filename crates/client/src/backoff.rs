//! When to try again: exponential, with full jitter.

use std::time::Duration;

/// The waits between attempts to reach an engine.
///
/// Each wait is drawn evenly from zero to a ceiling, and the ceiling doubles with each failure:
/// agents that lost the same engine at once do not come back to it at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// The first wait is at most `first`, no wait is longer than `max`.
    pub fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            failures: 0,
        }
    }

    /// The next wait. `random` is any 64 even bits.
    pub fn next_wait(&mut self, random: u64) -> Duration {
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let ceiling = self.first.saturating_mul(doubled).min(self.max);
        self.failures = self.failures.saturating_add(1);
        let nanos = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
        // The high half of the product is `random` scaled to 0..=nanos, without a division's bias.
        let scaled = (u128::from(random) * (u128::from(nanos) + 1)) >> 64;
        Duration::from_nanos(u64::try_from(scaled).unwrap_or(nanos))
    }

    /// Starts again from the first wait: the last attempt led to a channel that lived.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

impl Default for Backoff {
    /// 100 ms, so that a restart of the engine is hardly seen; at most 15 s, so that an agent is
    /// back soon after a long outage and ten thousand of them are still few attempts a second.
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(15))
    }
}

/// 64 even bits. A system without randomness could not have opened a TLS channel either; the
/// middle of the range is then as good as any.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    match rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut bytes)
    {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_unavailable) => u64::MAX / 2,
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
    fn a_reset_begins_again_and_many_failures_do_not_overflow() {
        let mut backoff = Backoff::default();
        for _ in 0..200 {
            assert!(backoff.next_wait(u64::MAX) <= Duration::from_secs(15));
        }
        backoff.reset();
        assert_eq!(backoff.next_wait(u64::MAX), Duration::from_millis(100));
    }
}
