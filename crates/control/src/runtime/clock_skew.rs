//! Measurement of the difference between this process's clock and the database's.
//!
//! Platforms on one database need the same time: each verifies tokens of the others, and a lease
//! expires for all. So each process compares its clock with the database's. Decisions that several
//! processes must make alike use the database's time ([`crate::app::App::database_now`]).

mod task;

pub(crate) use self::task::run;

use std::sync::atomic::{AtomicI64, Ordering};

use daemon::clock::Clock;
use jiff::SignedDuration;
use store::Store;

use crate::runtime::metrics;

/// The difference that was measured last; a part of [`crate::app::App`].
#[derive(Debug, Default)]
pub struct ClockSkew {
    /// Difference by which our clock is ahead, in microseconds.
    ahead: AtomicI64,
}

impl ClockSkew {
    /// Difference by which our clock is ahead of the database's.
    pub fn ahead(&self) -> SignedDuration {
        SignedDuration::from_micros(self.ahead.load(Ordering::Relaxed))
    }

    /// True if the difference is so large that other processes refuse the tokens of this one, or
    /// accept them for too long.
    pub fn is_too_large(&self) -> bool {
        self.ahead().abs() > MAX_SKEW
    }

    /// Compares the clocks, and logs a difference.
    ///
    /// # Errors
    /// The database does not respond. The previous measurement stays in use.
    pub async fn measure(&self, store: &Store, clock: &dyn Clock) -> Result<(), store::Error> {
        let before = clock.now();
        let Some(database) = store.time().await? else {
            return Ok(());
        };
        let after = clock.now();
        // The database read its clock at some time between `before` and `after`.
        let ahead = nearest(
            before.duration_since(database),
            after.duration_since(database),
        );
        let micros = i64::try_from(ahead.as_micros()).unwrap_or(i64::MAX);
        self.ahead.store(micros, Ordering::Relaxed);
        metrics::clock_skew(ahead);
        if ahead.abs() > MAX_SKEW {
            tracing::error!(
                seconds = ahead.as_secs_f64(),
                "this clock is too far ahead of the database's, so requests are not served; \
                 correct the clock"
            );
        } else if ahead.abs() > WARNING_THRESHOLD {
            tracing::warn!(
                seconds = ahead.as_secs_f64(),
                "this clock is ahead of the database's"
            );
        }
        Ok(())
    }
}

/// The difference that is nearest to zero in the range between the two.
fn nearest(one: SignedDuration, other: SignedDuration) -> SignedDuration {
    let (least, most) = if one < other {
        (one, other)
    } else {
        (other, one)
    };
    SignedDuration::ZERO.clamp(least, most)
}

/// Synchronised clocks differ by less than this.
const WARNING_THRESHOLD: SignedDuration = SignedDuration::from_secs(2);
/// Tokens with an issue time more than some seconds away are refused.
const MAX_SKEW: SignedDuration = SignedDuration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_response_does_not_count_as_skew() {
        let seconds = SignedDuration::from_secs;
        for (before, after, ahead) in [(-3, 2, 0), (1, 4, 1), (-9, -4, -4), (0, 0, 0)] {
            assert_eq!(nearest(seconds(before), seconds(after)), seconds(ahead));
        }
    }
}
