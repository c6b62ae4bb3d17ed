//! Runs the test programs, several at a time.

use std::collections::VecDeque;
use std::env;
use std::io::{self, Write};
use std::mem;
use std::num::NonZero;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::programs::Program;
use crate::provision::Provisions;
use crate::repository::Repository;
use crate::watch::{self, TimeLimits, failures};
use crate::workspace::{FEATURES, in_repository};

/// Programs that wait for their turn, and the failures of the others.
pub(super) struct Queue {
    waiting: Mutex<VecDeque<Program>>,
    /// Programs that run alone, after the others.
    exclusive: Mutex<VecDeque<Program>>,
    /// The end of the time of all programs together.
    deadline: Instant,
    /// The names and reports of failed programs.
    failed: Mutex<Vec<(String, String)>>,
}

/// Time of one test program without a line of output: several times the longest duration of a single
/// test on two slow cores. The duration of a whole program varies by more than a factor of two between
/// machines, so it has no limit of its own.
const SILENCE_LIMIT: Duration = Duration::from_mins(10);

/// Time limit of all: less than the limit of continuous integration.
const TIME_LIMIT: Duration = Duration::from_mins(45);

/// Tests mostly wait: for processes to start, for time-outs, for a browser. One program does not keep
/// the machine busy, above all not with its last tests.
const CONCURRENT_PROGRAMS: usize = 2;

/// Concurrent tests of a program for each core. With more, the machine is always busy and tests only
/// take longer.
const TESTS_PER_CORE: usize = 2;

/// The environment variable of Rust's test programs.
const THREADS: &str = "RUST_TEST_THREADS";

/// The packages whose tests take the longest. They start first, so that no core is idle at the end.
const SLOW_PACKAGES: [&str; 5] = ["control", "e2e", "engine", "svc", "store"];

/// The packages whose tests run without others. The slow visitors of `attack` fill more than a gigabyte
/// of socket buffers. From `net.ipv4.tcp_mem` on, Linux resets connections of any program that are
/// closed before their last bytes were read.
const EXCLUSIVE_PACKAGES: [&str; 1] = ["attack"];

impl Queue {
    pub(super) fn new(mut programs: Vec<Program>) -> Self {
        programs.sort_by_key(|program| {
            let mut slow = SLOW_PACKAGES.iter();
            let rank = slow.position(|package| *package == program.package);
            rank.unwrap_or(SLOW_PACKAGES.len())
        });
        let (exclusive, concurrent): (VecDeque<_>, VecDeque<_>) = programs
            .into_iter()
            .partition(|program| EXCLUSIVE_PACKAGES.contains(&program.package.as_str()));
        Self {
            waiting: Mutex::new(concurrent),
            exclusive: Mutex::new(exclusive),
            deadline: Instant::now() + TIME_LIMIT,
            failed: Mutex::default(),
        }
    }

    /// Runs all programs. A failure does not stop the others.
    pub(super) fn run(&self, repository: &Repository, provisions: &Provisions) -> Result<()> {
        thread::scope(|scope| {
            let runs: Vec<_> = (0..CONCURRENT_PROGRAMS)
                .map(|_| scope.spawn(|| self.run_each(&self.waiting, repository, provisions)))
                .collect();
            for run in runs {
                match run.join() {
                    Ok(ended) => ended?,
                    Err(_) => bail!("a thread of the test programs panicked"),
                }
            }
            Ok(())
        })?;
        self.run_each(&self.exclusive, repository, provisions)
    }

    /// Runs one program after the other until none waits.
    fn run_each(
        &self,
        programs: &Mutex<VecDeque<Program>>,
        repository: &Repository,
        provisions: &Provisions,
    ) -> Result<()> {
        loop {
            let Some(program) = locked(programs).pop_front() else {
                return Ok(());
            };
            let mut command = program.command(repository, provisions)?;
            if env::var_os(THREADS).is_none() {
                command.env(THREADS, threads().to_string());
            }
            self.supervise(&mut command, &program.to_string())?;
        }
    }

    /// Compiles and runs the examples of the documentation.
    pub(super) fn run_examples(&self, repository: &Repository) -> Result<()> {
        let mut cargo = in_repository(repository);
        cargo
            .args(["test", "--doc", "--workspace", "--locked", "--no-fail-fast"])
            .args(FEATURES);
        self.supervise(&mut cargo, "examples")
    }

    /// Runs the command up to the time limit, and then prints its output.
    fn supervise(&self, command: &mut Command, name: &str) -> Result<()> {
        let started = Instant::now();
        let output = Output::default();
        let limits = TimeLimits {
            whole: self.deadline.saturating_duration_since(started),
            silence: SILENCE_LIMIT,
        };
        let failure = watch::supervise(command, name, limits, output.clone())?;
        let mut stdout = io::stdout().lock();
        let seconds = started.elapsed().as_secs_f32();
        writeln!(stdout, "\n     Running {name} ({seconds:.1} s)")?;
        stdout.write_all(&mem::take(&mut *locked(&output.0)))?;
        stdout.flush()?;
        if let Some(failure) = failure {
            let report = failures::report(&failure);
            locked(&self.failed).push((name.to_owned(), report));
        }
        Ok(())
    }

    /// An error if a program failed. Prints the logs of its failed tests.
    pub(super) fn finish(self) -> Result<()> {
        let mut failed = self
            .failed
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if failed.is_empty() {
            return Ok(());
        }
        failed.sort();
        eprint!("{}", failures::join_reports(&failed));
        bail!("{} test programs failed", failed.len())
    }
}

/// The output of a program.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        locked(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Number of concurrent tests of a program.
fn threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    cores * TESTS_PER_CORE
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_reported_at_the_end_and_stops_nothing() {
        let queue = Queue::new(Vec::new());
        for name in ["false", "true", "false"] {
            queue.supervise(&mut Command::new(name), name).unwrap();
        }
        let error = queue.finish().unwrap_err();
        assert_eq!(error.to_string(), "2 test programs failed");
        let queue = Queue::new(Vec::new());
        queue.supervise(&mut Command::new("true"), "true").unwrap();
        queue.finish().unwrap();
    }

    #[test]
    fn all_programs_together_have_a_time_limit() {
        let mut queue = Queue::new(Vec::new());
        queue.deadline = Instant::now();
        let mut hanging = Command::new("sleep");
        queue.supervise(hanging.arg("600"), "a program").unwrap();
        let failed = locked(&queue.failed);
        let (name, report) = &failed[0];
        assert_eq!(name, "a program");
        assert!(report.contains("`a program` hung"), "{report}");
    }
}
