//! `cargo xtask attack`: hostile clients, services and agents against the release program.

use std::process::Command;

use anyhow::Result;

use crate::program;
use crate::repository::Repository;

/// Builds the release program and the attacking one, and passes `args` on to the latter.
pub(crate) fn run(repository: &Repository, args: &[String]) -> Result<()> {
    let cargo = |args: &[&str]| {
        let mut cargo = program::cargo();
        cargo.current_dir(repository.root()).args(args);
        program::run(&mut cargo)
    };
    // The release profile is the point: what only an assertion of debug builds prevents is found here.
    cargo(&["build", "--locked", "--release", "-p", "svc"])?;
    // The workspace is selected, so that dependencies have the features that the tests built.
    cargo(&["build", "--locked", "--workspace", "--bin", "attack"])?;
    let target = repository.target_directory()?;
    let mut attack = Command::new(target.join("debug").join("attack"));
    attack
        .args(args)
        .env("SVC_BIN", target.join("release").join("svc"));
    program::run(&mut attack)
}
