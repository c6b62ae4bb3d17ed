//! Runs the test programs, several at a time.

use std::collections::VecDeque;
use std::env;
use std::io::{self, Write};
use std::mem;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::programs::Program;
use crate::provision::Provisions;
use crate::repository::Repository;
use crate::watch::{self, failures};
use crate::workspace::{FEATURES, in_repository};

/// Programs that wait for their turn, and the failures of the others.
pub(super) struct Queue {
    waiting: Mutex<VecDeque<Program>>,
    /// The end of the time of all programs together.
    deadline: Instant,
    /// The names and reports of failed programs.
    failed: Mutex<Vec<(String, String)>>,
}

/// Time limit of one test program: several times the longest duration on two slow cores.
const PROGRAM_TIME_LIMIT: Duration = Duration::from_mins(15);

/// Time limit of all: less than the limit of continuous integration.
const TIME_LIMIT: Duration = Duration::from_mins(45);

/// Tests mostly wait: for processes to start, for time-outs, for a browser. One program does not keep
/// the machine busy, above all not with its last tests.
const CONCURRENT_PROGRAMS: usize = 2;

/// Number of concurrent tests of a program. With more, the machine is always busy and tests only take
/// longer.
const TESTS_PER_CORE: usize = 2;

/// The environment variable of Rust's test programs.
const THREADS: &str = "RUST_TEST_THREADS";

/// The packages whose tests take the longest. They start first, so that no core is idle at the end.
const SLOW_PACKAGES: [&str; 6] = ["control", "e2e", "engine", "svc", "attack", "store"];

impl Queue {
    pub(super) fn new(mut programs: Vec<Program>) -> Self {
        programs.sort_by_key(|program| {
            let mut slow = SLOW_PACKAGES.iter();
            let is_slow = slow.position(|package| *package == program.package);
            is_slow.unwrap_or(SLOW_PACKAGES.len())
        });
        Self {
            waiting: Mutex::new(programs.into()),
            deadline: Instant::now() + TIME_LIMIT,
            failed: Mutex::default(),
        }
    }

    /// Runs all programs. A failure does not stop the others.
    pub(super) fn run(&self, repository: &Repository, provisions: &Provisions) -> Result<()> {
        thread::scope(|scope| {
            let runs: Vec<_> = (0..CONCURRENT_PROGRAMS)
                .map(|_| scope.spawn(|| self.run_next(repository, provisions)))
                .collect();
            for run in runs {
                match run.join() {
                    Ok(ended) => ended?,
                    Err(_) => bail!("a thread of the test programs panicked"),
                }
            }
            Ok(())
        })
    }

    /// Runs one program after the other until none waits.
    fn run_next(&self, repository: &Repository, provisions: &Provisions) -> Result<()> {
        loop {
            let Some(program) = locked(&self.waiting).pop_front() else {
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

    /// Prints the output of the command when it has ended.
    fn supervise(&self, command: &mut std::process::Command, name: &str) -> Result<()> {
        let started = Instant::now();
        let remaining = self.deadline.saturating_duration_since(started);
        let output = Output::default();
        let limit = PROGRAM_TIME_LIMIT.min(remaining);
        let failure = watch::supervise(command, name, limit, output.clone())?;
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

fn threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    cores * TESTS_PER_CORE
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
