//! The project's own tasks, behind `cargo xtask <task>`.
//!
//! `up` starts the program as a new user does, `test` runs all checks for a change, `provision`
//! installs what the tests need, `fuzz` runs the parsers with random input, `attack` runs hostile
//! clients against the release program, `soak` repeats the tests on a busy machine, `deep` runs the
//! long checks, `bench` measures, `dist` makes packages, `package` makes those of the client
//! library for a registry, `web` fetches the terminal of the pages and builds the dashboard,
//! `systems` checks the agent for systems that it is not tested on, `tidy` checks the house rules,
//! and `rules` writes `docs/rules.md`. The check of `rules` is also a test of this package, so that
//! a plain `cargo test` runs it.
#![expect(
    clippy::print_stderr,
    reason = "a task talks to the person who started it"
)]

mod attack;
mod bench;
mod compatibility;
mod deep;
mod dist;
mod fuzz;
mod package;
mod program;
mod programs;
mod provision;
mod release;
mod repository;
mod rules;
mod soak;
mod systems;
mod test;
mod test_set;
mod tidy;
mod up;
mod watch;
mod web;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::repository::Repository;
use crate::test_set::TestSet;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let (task, rest) = args
        .split_first()
        .map_or(("help", args), |(task, rest)| (task.as_str(), rest));
    let repository = Repository::of_this_package()?;
    match task {
        "up" => up::run(&repository, rest),
        "test" => test::run(&repository, accepts_all(rest)?),
        "provision" => provision::run(&repository, TestSet::Change, accepts_all(rest)?).map(drop),
        "bench" => bench::run(&repository, rest),
        "dist" => dist::run(&repository, rest),
        "package" => no_arguments(rest).and_then(|()| package::run(&repository)),
        "web" => no_arguments(rest).and_then(|()| web::run(&repository).map(drop)),
        "fuzz" => fuzz::run(&repository, rest),
        "attack" => attack::run(&repository, rest),
        "compatibility" => compatibility::run(&repository, rest),
        "release" => no_arguments(rest).and_then(|()| release::run(&repository)),
        "deep" => no_arguments(rest).and_then(|()| deep::run(&repository)),
        "soak" => soak::run(&repository, rest),
        "systems" => no_arguments(rest).and_then(|()| systems::run(&repository)),
        "tidy" => no_arguments(rest).and_then(|()| tidy::run(&repository)),
        "rules" => no_arguments(rest).and_then(|()| rules::run(&repository)),
        "help" | "--help" | "-h" => {
            eprint!("{USAGE}");
            Ok(())
        }
        other => bail!("there is no task `{other}`\n\n{USAGE}"),
    }
}

/// The only flag of the tasks that may install something.
fn accepts_all(args: &[String]) -> Result<bool> {
    match args {
        [] => Ok(false),
        [flag] if flag == "--yes" => Ok(true),
        _ => bail!("unexpected arguments; only `--yes` is known here"),
    }
}

fn no_arguments(args: &[String]) -> Result<()> {
    match args {
        [] => Ok(()),
        _ => bail!("this task takes no arguments"),
    }
}

const USAGE: &str = "\
Usage: cargo xtask <task>

  up [args…]         build the release binary and run `svc up --demo [args…]`
  test [--yes]       install what the tests need, then run every check
  provision [--yes]  only install what the tests need
  bench [options]    the engine and the agent beside anchors and peers (--help)
  fuzz [--seconds N] [target…]
                     every target of fuzz/, or those that are named, for N seconds (120)
  attack [--seconds N] [--seed N] [--only CASE]
                     hostile clients, services and agents against the release program
  deep               the long checks: the last release beside this tree, generated clients, attacks
                     for ten minutes, every fuzz target, the packages of the client library, one
                     soak round
  soak [--rounds N] [--load] [--all] [--seed N] [package…]
                     every test whose passes in tests/soak.txt are too few, in shuffled order,
                     beside busy loops with --load
  dist [options]     the packages: tarballs and .deb of the program and of the small agent (--help)
  release            record the commit that is checked out as the release of its version
  package            the client library and the crates below it, as a registry takes them
  web                fetch the terminal of the platform's pages and build the dashboard, which the
                     next build takes in
  systems            the agent, type-checked for Windows and macOS
  tidy               the house rules: crate graph, banned crates, sources
  rules              write docs/rules.md from the rule ids that code and tests cite

`--yes`, or CI=true, installs without asking.
";
