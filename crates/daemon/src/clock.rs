//! The time of day behind a trait, so that tests can set it.

use jiff::Timestamp;

/// Source of the time of day. Token lifetimes, caches and dates use it; timers of the runtime do
/// not.
pub trait Clock: std::fmt::Debug + Send + Sync + 'static {
    /// The present moment, UTC.
    fn now(&self) -> Timestamp;
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
pub struct ManualClock(parking_lot::Mutex<Timestamp>);

impl ManualClock {
    /// Creates a clock with the time `now`.
    pub fn at(now: Timestamp) -> Self {
        Self(parking_lot::Mutex::new(now))
    }

    /// Sets the clock, also backwards, like real clocks.
    pub fn set(&self, now: Timestamp) {
        *self.0.lock() = now;
    }

    /// Moves the clock forward by `seconds`, or backwards if negative.
    pub fn advance(&self, seconds: i64) {
        let mut now = self.0.lock();
        *now = now
            .saturating_add(jiff::SignedDuration::from_secs(seconds))
            .unwrap_or(Timestamp::MAX);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}
