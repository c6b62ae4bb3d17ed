//! Memory that a load needed goes back to the system when the load is over.
//!
//! The allocator keeps what is freed for the next time, wherever it lies: an hour after a thousand
//! visitors a process is as large as with them. So each worker counts the buffers that it takes
//! ([`Scratch::taken`]), which is about the messages that it moves, and gives memory back when
//! there are suddenly few.

use std::time::Duration;

use crate::Scratch;

/// How long one period is. Long beside a pause within a load, short beside the next load.
pub(crate) const PERIOD: Duration = Duration::from_secs(5);

/// Fewer buffers in a period than this are no load: what it left behind is little. The heartbeats
/// of a thousand agents are 200 a second.
const LOAD: u64 = 2_000;

/// As many periods later, memory is given back once more: what idles behind a load, such as
/// standing connections, is closed within a minute and a half.
const AGED: u32 = 20;

/// Whether a load is over, judged once in each period.
#[derive(Debug, Default)]
pub(crate) struct LoadMonitor {
    /// The most buffers taken in one period since memory was given back.
    peak: u64,
    /// Periods since a load was over.
    since: Option<u32>,
}

impl LoadMonitor {
    /// Whether to give memory back, `taken` buffers having been taken in the period that ends.
    pub(crate) fn has_subsided(&mut self, taken: u64) -> bool {
        self.peak = self.peak.max(taken);
        if self.peak >= LOAD && taken < self.peak / 8 {
            self.peak = taken;
            self.since = Some(0);
            return true;
        }
        match &mut self.since {
            Some(AGED) => {
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

/// Frees this thread's spare buffers, and gives what is free in the whole process back.
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
    // SAFETY: declared as in malloc.h. It touches nothing but free memory, and locks what it looks at.
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
    fn a_load_that_ends_is_noticed_once_and_once_more_when_what_idles_has_aged() {
        let mut calm = LoadMonitor::default();
        for taken in [10, 3_000, 90_000, 50_000] {
            assert!(!calm.has_subsided(taken), "{taken}");
        }
        assert!(calm.has_subsided(400));
        for _ in 0..AGED {
            assert!(!calm.has_subsided(400));
        }
        assert!(calm.has_subsided(400));
        for _ in 0..100 {
            assert!(!calm.has_subsided(400));
        }
    }

    #[test]
    fn little_and_even_work_is_left_alone() {
        let mut calm = LoadMonitor::default();
        for taken in [0, 1_999, 0, 0, 1_000, 0] {
            assert!(!calm.has_subsided(taken), "{taken}");
        }
        for taken in [5_000, 9_000, 4_000, 9_000, 2_000, 8_000] {
            assert!(!calm.has_subsided(taken), "{taken}");
        }
    }
}
