//! `cargo xtask attack`: hostile clients, services and agents against the program as it is shipped.

use std::process::Command;

use anyhow::Result;

use crate::program;
use crate::repository::Repository;
use crate::test::{FEATURES, in_repository};

/// Builds the release program and the attacking one, and passes `args` on to the latter. The test of
/// `tests/attack` attacks the program of the tests for a minute.
pub(crate) fn run(repository: &Repository, args: &[String]) -> Result<()> {
    cargo(repository, &["build", "--locked", "--release", "-p", "svc"])?;
    // The workspace is selected, so that dependencies have the features that the tests built.
    let build = ["build", "--locked", "--workspace", "--bin", "attack"];
    cargo(repository, &[&build[..], &FEATURES[..]].concat())?;
    let target = repository.target_directory()?;
    let mut attack = Command::new(target.join("debug").join("attack"));
    let release = target.join("release").join("svc");
    program::run(attack.args(args).env("SVC_BIN", release))
}

fn cargo<Argument: AsRef<std::ffi::OsStr>>(
    repository: &Repository,
    args: &[Argument],
) -> Result<()> {
    program::run(in_repository(repository).args(args))
}
