//! `cargo xtask deep`: the checks that take too long to run for each change.

use anyhow::Result;

use crate::attack;
use crate::compatibility;
use crate::fuzz;
use crate::package;
use crate::repository::Repository;
use crate::soak;
use crate::test;

/// Runs the last release and this tree together, runs the slow tests, attacks the release program for
/// ten minutes, fuzzes every target, builds the packages of the client library separately, and runs
/// every other test once on a busy machine.
pub(crate) fn run(repository: &Repository) -> Result<()> {
    compatibility::run(repository, &[])?;
    test::deep(repository)?;
    let seconds = ["--seconds", "600"].map(str::to_owned);
    attack::run(repository, &seconds)?;
    fuzz::run(repository, &[])?;
    package::run(repository)?;
    soak::run(repository, &["--load", "--all"].map(str::to_owned))
}
