//! Measurement of the difference between this process's clock and the database's.
//!
//! Platforms on one database must agree on the time: tokens that one issues are verified by the
//! others, and a lease of one expires for all. So each compares its clock with the database's.
//! Decisions that several processes share use the database's time ([`App::database_now`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::metrics;

/// The last measured difference; a part of [`App`].
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
    /// The database does not respond. The previous measurement stays effective.
    pub async fn measure(&self, app: &App) -> Result<(), store::Error> {
        let before = app.now();
        let Some(database) = app.store.time().await? else {
            return Ok(());
        };
        let after = app.now();
        // The database read its clock between the two times.
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
                "this clock is ahead of the database's by so much that nothing is served; set it"
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

impl App {
    /// The current time of the clock that all processes on this database share.
    pub fn database_now(&self) -> Timestamp {
        let now = self.now();
        now.saturating_sub(self.clock_skew.ahead()).unwrap_or(now)
    }
}

/// Compares the clocks every minute until `stop`.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) {
    loop {
        if let Err(error) = app.clock_skew.measure(&app).await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the clocks were not compared"
            );
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// The difference closest to zero between two.
fn nearest(one: SignedDuration, other: SignedDuration) -> SignedDuration {
    let (least, most) = if one < other {
        (one, other)
    } else {
        (other, one)
    };
    SignedDuration::ZERO.clamp(least, most)
}

/// A synchronised clock differs by less.
const WARNING_THRESHOLD: SignedDuration = SignedDuration::from_secs(2);
/// Tokens with an issue time more than some seconds away are refused.
const MAX_SKEW: SignedDuration = SignedDuration::from_secs(30);
const INTERVAL: Duration = Duration::from_mins(1);

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
