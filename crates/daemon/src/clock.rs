//! The time behind a trait, so that tests can set it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Source of the time. Token lifetimes, caches, dates and rates use it; timers of the runtime do
/// not.
pub trait Clock: std::fmt::Debug + Send + Sync + 'static {
    /// The present moment, UTC.
    fn now(&self) -> Timestamp;

    /// The present moment of a clock that never goes back, for rates. A change of the time of day
    /// must not block clients.
    fn instant(&self) -> Instant {
        Instant::now()
    }
}

/// The clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that only moves when it is set; for tests.
#[derive(Debug)]
pub struct ManualClock(parking_lot::Mutex<ManualTime>);

#[derive(Debug)]
struct ManualTime {
    now: Timestamp,
    instant: Instant,
}

impl ManualClock {
    /// Creates a clock with the time `now`.
    pub fn at(now: Timestamp) -> Self {
        let instant = Instant::now();
        Self(parking_lot::Mutex::new(ManualTime { now, instant }))
    }

    /// Sets the clock, also backwards, like real clocks.
    pub fn set(&self, now: Timestamp) {
        self.0.lock().set(now);
    }

    /// Moves the clock forward by `seconds`, or backwards if negative.
    pub fn advance(&self, seconds: i64) {
        let mut time = self.0.lock();
        let now = time
            .now
            .saturating_add(SignedDuration::from_secs(seconds))
            .unwrap_or(Timestamp::MAX);
        time.set(now);
    }
}

impl ManualTime {
    fn set(&mut self, now: Timestamp) {
        // Zero if the time of day goes back.
        let passed = Duration::try_from(now.duration_since(self.now)).unwrap_or_default();
        self.instant = self.instant.checked_add(passed).unwrap_or(self.instant);
        self.now = now;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.0.lock().now
    }

    fn instant(&self) -> Instant {
        self.0.lock().instant
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_advances_only_on_request_and_its_instant_never_decreases() {
        let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
        let start = clock.instant();
        assert_eq!(clock.instant(), start);
        clock.advance(10);
        assert_eq!(clock.instant(), start + Duration::from_secs(10));
        clock.advance(-20);
        assert_eq!(clock.instant(), start + Duration::from_secs(10));
        clock.set(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.instant(), start + Duration::from_secs(20));
        clock.set(Timestamp::MAX);
        assert!(clock.instant() > start);
    }
}
