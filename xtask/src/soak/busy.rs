//! Load that keeps the machine busy.

use std::hint;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Threads in busy loops, twice as many as there are cores, until the value is dropped.
pub(super) struct BusyLoops {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyLoops {
    pub(super) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = (0..2 * cores).map(|_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            })
        });
        Self {
            threads: threads.collect(),
            stop,
        }
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that only loops does not panic.
            drop(thread.join());
        }
    }
}
