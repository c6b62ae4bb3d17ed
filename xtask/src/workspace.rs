//! Cargo commands for the whole workspace, all with the same environment and features.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::program;
use crate::repository::Repository;

/// Features that `svc` does not enable by default. Lint and test steps enable them as well: a
/// second set of features would compile the dependencies again, and once more in the next run.
pub(crate) const FEATURES: [&str; 2] = ["--features", "svc/keyring"];

/// The tested program, which cargo builds before the tests.
pub(crate) fn svc(repository: &Repository) -> Result<PathBuf> {
    Ok(repository.target_directory()?.join("debug").join("svc"))
}

/// The program with the release profile, which [`build_release`] builds.
pub(crate) fn release(repository: &Repository) -> Result<PathBuf> {
    Ok(repository.target_directory()?.join("release").join("svc"))
}

/// Builds the program with the release profile.
pub(crate) fn build_release(repository: &Repository) -> Result<()> {
    let build = ["build", "--locked", "--release", "-p", "svc"];
    program::run(in_repository(repository).args(build))
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
