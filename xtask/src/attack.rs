//! `cargo xtask attack`: hostile clients, services and agents against the release program.

use std::process::Command;

use anyhow::Result;

use crate::program;
use crate::repository::Repository;
use crate::workspace::{FEATURES, build_release, in_repository, release};

/// Builds the release program and the attacking one, and passes `args` to the latter. The test in
/// `tests/attack` attacks the test build for some seconds.
pub(crate) fn run(repository: &Repository, args: &[String]) -> Result<()> {
    build_release(repository)?;
    // The workspace is selected, so that dependencies have the same features as in the tests.
    let build = ["build", "--locked", "--workspace", "--bin", "attack"];
    program::run(in_repository(repository).args(build).args(FEATURES))?;
    let target = repository.target_directory()?;
    let mut attack = Command::new(target.join("debug").join("attack"));
    program::run(attack.args(args).env("SVC_BIN", release(repository)?))
}
