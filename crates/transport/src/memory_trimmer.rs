//! Returns memory to the system when the load that needed it is over.
//!
//! The allocator keeps freed memory for later use, so a process would stay as large as it was
//! under its largest load. So each worker counts the buffers that it takes
//! ([`Scratch::taken`]), which is about the number of messages that it transfers, and returns
//! memory when there are suddenly few.

use std::time::Duration;

use crate::Scratch;

/// Length of one period: long compared with a pause within a load, short compared with the time
/// between loads.
pub(crate) const PERIOD: Duration = Duration::from_secs(5);

/// A period with fewer buffers than this is not a load, because it leaves little memory behind. The
/// heartbeats of a thousand agents are 200 a second.
const LOAD: u64 = 2_000;

/// Number of periods after which memory is returned again: connections that are idle after a load,
/// such as standing connections, are closed within a minute and a half.
const PERIODS_BETWEEN_TRIMS: u32 = 20;

/// Detects the end of a load, once in each period.
#[derive(Debug, Default)]
pub(crate) struct LoadMonitor {
    /// The maximum number of buffers taken in one period since memory was returned.
    peak: u64,
    /// Periods since the end of a load.
    since: Option<u32>,
}

impl LoadMonitor {
    /// Returns true if memory should be returned. `taken` is the number of buffers taken in the
    /// period that has just ended.
    pub(crate) fn has_subsided(&mut self, taken: u64) -> bool {
        self.peak = self.peak.max(taken);
        if self.peak >= LOAD && taken < self.peak / 8 {
            self.peak = taken;
            self.since = Some(0);
            return true;
        }
        match &mut self.since {
            Some(PERIODS_BETWEEN_TRIMS) => {
                self.since = None;
                true
            }
            Some(periods) => {
                *periods += 1;
                false
            }
            None => false,
        }
    }
}

/// Frees this thread's spare buffers, and returns the free memory of the whole process.
pub(crate) fn trim_memory() {
    Scratch::free_spare();
    trim();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the C library offers it to C alone")]
fn trim() {
    unsafe extern "C" {
        /// `malloc_trim(3)`.
        fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    // SAFETY: declared as in malloc.h. It only accesses free memory, under the allocator's locks.
    unsafe {
        malloc_trim(0);
    }
}

/// Other C libraries have no such call.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_load_is_noticed_twice() {
        let mut calm = LoadMonitor::default();
        for taken in [10, 3_000, 90_000, 50_000] {
            assert!(!calm.has_subsided(taken), "{taken}");
        }
        assert!(calm.has_subsided(400));
        for _ in 0..PERIODS_BETWEEN_TRIMS {
            assert!(!calm.has_subsided(400));
        }
        assert!(calm.has_subsided(400));
        for _ in 0..100 {
            assert!(!calm.has_subsided(400));
        }
    }

    #[test]
    fn light_and_constant_load_is_ignored() {
        let mut calm = LoadMonitor::default();
        for taken in [0, 1_999, 0, 0, 1_000, 0] {
            assert!(!calm.has_subsided(taken), "{taken}");
        }
        for taken in [5_000, 9_000, 4_000, 9_000, 2_000, 8_000] {
            assert!(!calm.has_subsided(taken), "{taken}");
        }
    }
}
