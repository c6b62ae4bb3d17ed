//! The clock of a tenure.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since the machine started, including the time for which it was suspended: a lease ends
/// during that time, too.
pub(crate) fn now() -> Duration {
    // The call fails only for a clock that the kernel does not have. Without the time nothing is
    // served.
    clock_gettime(CLOCK).map_or(Duration::MAX, Duration::from)
}

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;

#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;
