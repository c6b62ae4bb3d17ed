//! The engine's clock.

pub use daemon::clock::{Clock, ManualClock, SystemClock};
use jiff::Timestamp;

/// The time in an id.
pub(crate) fn unix_millis(now: Timestamp) -> u64 {
    u64::try_from(now.as_millisecond()).unwrap_or(0)
}
