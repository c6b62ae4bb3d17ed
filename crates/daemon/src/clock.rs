//! The time of day, read through a trait, so that a test can move it.

use jiff::Timestamp;

/// Tells the time of day. Token lifetimes, memories and dates all come from here; timers of the
/// runtime do not.
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

/// A clock that stands still until it is told to move; for tests.
#[derive(Debug)]
pub struct ManualClock(parking_lot::Mutex<Timestamp>);

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn at(now: Timestamp) -> Self {
        Self(parking_lot::Mutex::new(now))
    }

    /// Moves the clock; backwards too, as clocks of machines do.
    pub fn set(&self, now: Timestamp) {
        *self.0.lock() = now;
    }

    /// Moves the clock forward by `seconds`, or back where it is negative.
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
