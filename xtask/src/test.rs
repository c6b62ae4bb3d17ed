//! `cargo xtask test`: all checks for a change, in order, stopping at the first failure.

use std::env;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use crate::fuzz;
use crate::program;
use crate::provision::{self, Provisions};
use crate::repository::Repository;
use crate::tidy;
use crate::watch::failures;

/// Features that `svc` does not enable by default. Lint and test steps enable them as well: a
/// second set of features would compile the dependencies again, and once more in the next run.
pub(crate) const FEATURES: [&str; 2] = ["--features", "svc/keyring"];

/// Provisions the machine and runs every step. An error names its step.
pub(crate) fn run(repository: &Repository, yes: bool) -> Result<()> {
    let mut steps = Steps {
        started: Instant::now(),
        done: 0,
    };

    steps.step("toolchain", components)?;
    let provisions = steps.step("provision", || provision::run(repository, yes))?;
    steps.step("rustfmt", || {
        run_cargo(repository, &["fmt", "--all", "--check"])
    })?;
    steps.step("clippy", || clippy(repository))?;
    steps.step("clippy, of a small agent", || small_agent(repository))?;
    steps.step("documentation", || documentation(repository))?;
    steps.step("tidy", || tidy::run(repository))?;
    steps.step("fuzz, briefly", || fuzz::briefly(repository))?;
    steps.step("cargo test", || tests(repository, &provisions))?;
    steps.finish();
    Ok(())
}

/// The two components that a minimal Rust installation lacks.
fn components() -> Result<()> {
    let missing: Vec<_> = [("fmt", "rustfmt"), ("clippy", "clippy")]
        .into_iter()
        .filter(|(command, _)| !program::succeeds(program::cargo().args([command, "--version"])))
        .map(|(_, component)| component)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "missing parts of Rust; install them with: rustup component add {}",
        missing.join(" ")
    )
}

fn clippy(repository: &Repository) -> Result<()> {
    let mut cargo = in_repository(repository);
    cargo
        .args(["clippy", "--workspace", "--all-targets", "--locked"])
        .args(FEATURES)
        .args(["--", "-D", "warnings"]);
    program::run(&mut cargo)
}

/// The program without its servers. The workspace is selected so that its dependencies are those of
/// the earlier steps, but only this program is checked.
fn small_agent(repository: &Repository) -> Result<()> {
    let selected = ["clippy", "--workspace", "--locked", "--bin", "svc"];
    let mut cargo = in_repository(repository);
    cargo
        .args(selected)
        .args(["--no-default-features", "--", "-D", "warnings"]);
    program::run(&mut cargo)
}

/// The API documentation of every crate: broken and ambiguous links are errors. It reuses clippy's
/// build of the dependencies; `crates/testing` and `tests/e2e` select the additional features of
/// tests.
fn documentation(repository: &Repository) -> Result<()> {
    let mut cargo = in_repository(repository);
    cargo
        .args(["doc", "--workspace", "--no-deps", "--locked"])
        .args(FEATURES)
        .env("RUSTDOCFLAGS", "-D warnings");
    program::run(&mut cargo)
}

/// The whole workspace each time: cargo unites the features of the selected packages, and another
/// selection would compile the dependencies again.
fn tests(repository: &Repository, provisions: &Provisions) -> Result<()> {
    let mut cargo = in_repository(repository);
    if let Some(watched) = watched(repository)? {
        cargo.args(["--config", &watched]);
    }
    cargo
        // One broken test must not hide failures in later packages.
        .args(["test", "--workspace", "--locked", "--no-fail-fast"])
        .args(FEATURES)
        .env("SVC_BIN", svc(repository)?);
    if env::var_os(THREADS).is_none() {
        cargo.env(THREADS, threads().to_string());
    }
    for (name, value) in provisions.environment() {
        cargo.env(name, value);
    }
    let folder = repository.target_directory()?.join("test-failures");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    cargo.env(failures::FOLDER, &folder);
    let ended = program::run(&mut cargo);
    eprint!("{}", failures::report(&folder)?);
    ended
}

/// Number of concurrent tests of a program. Tests mostly wait: for processes to start, for
/// time-outs, for a browser.
fn threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    cores * TESTS_PER_CORE
}

/// With more, the machine is always busy and tests only take longer.
const TESTS_PER_CORE: usize = 3;

/// The environment variable of Rust's test programs.
const THREADS: &str = "RUST_TEST_THREADS";

/// The tested program, which cargo builds before the tests.
pub(crate) fn svc(repository: &Repository) -> Result<PathBuf> {
    Ok(repository.target_directory()?.join("debug").join("svc"))
}

/// Cargo's configuration of the runner of test programs: `watch` of this program, for runs without
/// a terminal. All test programs together have a time limit as well.
fn watched(repository: &Repository) -> Result<Option<String>> {
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    let xtask = repository.target_directory()?.join("debug").join("xtask");
    let until = SystemTime::now() + ALL;
    let until = until.duration_since(UNIX_EPOCH)?.as_secs();
    let [most, until] = [PROGRAM_TIME_LIMIT.as_secs(), until].map(|seconds| seconds.to_string());
    let runner = serde_json::json!([xtask, "watch", most, until]);
    Ok(Some(format!("target.'cfg(all())'.runner = {runner}")))
}

/// Time limit of one test program: several times the longest duration on two slow cores.
const PROGRAM_TIME_LIMIT: Duration = Duration::from_mins(15);

/// Time limit of all: including the build, less than the limit of continuous integration.
const ALL: Duration = Duration::from_mins(55);

fn run_cargo(repository: &Repository, args: &[&str]) -> Result<()> {
    program::run(in_repository(repository).args(args))
}

/// Cargo, in the repository, with the same environment in all steps, so that each step reuses the
/// build of the previous one.
pub(crate) fn in_repository(repository: &Repository) -> Command {
    let mut cargo = program::cargo();
    cargo.current_dir(repository.root());
    // Incremental data makes rebuilds faster and is half of the output, but continuous integration
    // builds once.
    if !io::stdin().is_terminal() {
        cargo.env("CARGO_INCREMENTAL", "0");
    }
    cargo
}

/// Headings and durations; the duration of a step is written when the next one starts.
struct Steps {
    started: Instant,
    done: usize,
}

impl Steps {
    fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.done > 0 {
            eprintln!("    took {:.1} s", self.started.elapsed().as_secs_f32());
        }
        self.done += 1;
        eprintln!("\n==> {}. {name}", self.done);
        self.started = Instant::now();
        work().with_context(|| format!("failed at step `{name}`"))
    }

    /// Prints the duration of the last step.
    fn finish(self) {
        eprintln!("    took {:.1} s", self.started.elapsed().as_secs_f32());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_step_and_keeps_its_cause() {
        let mut steps = Steps {
            started: Instant::now(),
            done: 0,
        };
        steps.step("first", || Ok(())).unwrap();
        let error = steps
            .step("second", || -> Result<()> { bail!("the cause") })
            .unwrap_err();
        assert_eq!(format!("{error:#}"), "failed at step `second`: the cause");
    }
}
