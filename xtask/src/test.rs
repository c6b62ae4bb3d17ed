//! `cargo xtask test`: all checks for a change, in order, stopping at the first failure.

mod queue;

use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use self::queue::Queue;
use crate::fuzz;
use crate::program;
use crate::programs;
use crate::provision::{self, Provisions};
use crate::repository::Repository;
use crate::test_set::TestSet;
use crate::tidy;
use crate::web;
use crate::workspace::{FEATURES, build_release, in_repository};

/// Provisions the machine and runs every step. An error names its step.
pub(crate) fn run(repository: &Repository, yes: bool) -> Result<()> {
    let mut steps = Steps {
        started: Instant::now(),
        done: 0,
    };

    steps.step("toolchain", components)?;
    let provisions = steps.step("provision", || {
        provision::run(repository, TestSet::Change, yes)
    })?;
    steps.step("rustfmt", || {
        run_cargo(repository, &["fmt", "--all", "--check"])
    })?;
    steps.step("clippy", || clippy(repository))?;
    steps.step("clippy, of a small agent", || small_agent(repository))?;
    steps.step("documentation", || documentation(repository))?;
    steps.step("tidy", || tidy::run(repository))?;
    steps.step("dashboard", || web::check(repository))?;
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
    let queue = Queue::new(programs::build(repository, TestSet::Change)?);
    let ended = queue.run(repository, provisions);
    let ended = ended.and_then(|()| queue.run_examples(repository));
    // The report of failed tests comes before another error.
    let finished = queue.finish();
    ended.and(finished)
}

/// Runs the tests of `cargo xtask deep`, and first installs the programs that they need.
pub(crate) fn deep(repository: &Repository) -> Result<()> {
    let provisions = provision::run(repository, TestSet::Deep, false)?;
    // These tests measure times.
    build_release(repository)?;
    let queue = Queue::new(programs::build(repository, TestSet::Deep)?);
    let ended = queue.run(repository, &provisions);
    let finished = queue.finish();
    ended.and(finished)
}

fn run_cargo(repository: &Repository, args: &[&str]) -> Result<()> {
    program::run(in_repository(repository).args(args))
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
