//! `cargo xtask attack`: hostile clients, services and agents against the program as it is shipped.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::program;
use crate::repository::Repository;
use crate::test::{FEATURES, in_repository, svc};

/// Builds the release program and the attacking one, and passes `args` on to the latter. `--gate` alone
/// attacks as `cargo xtask test` does.
pub(crate) fn run(repository: &Repository, args: &[String]) -> Result<()> {
    if args == ["--gate"] {
        return briefly(repository);
    }
    cargo(repository, &["build", "--locked", "--release", "-p", "svc"])?;
    let release = repository.target_directory()?.join("release").join("svc");
    attack(repository, release, args)
}

/// One minute, as every change has to pass it, against the program that the tests have built. Our crates
/// have no assertions that release builds leave out (`clippy.toml` refuses them), so a defect is not
/// hidden here; an overflow ends a test program and wraps in a release. `cargo xtask deep` attacks the
/// release program, whose dependencies take ten minutes to optimise.
pub(crate) fn briefly(repository: &Repository) -> Result<()> {
    // The workspace is selected, so that dependencies have the features that the tests built.
    let build = ["build", "--locked", "--workspace", "--bin", "svc"];
    cargo(repository, &[&build[..], &FEATURES[..]].concat())?;
    let minute = ["--seconds".to_owned(), "60".to_owned()];
    attack(repository, svc(repository)?, &minute)
}

fn attack(repository: &Repository, attacked: PathBuf, args: &[String]) -> Result<()> {
    // The workspace is selected, so that dependencies have the features that the tests built.
    let build = ["build", "--locked", "--workspace", "--bin", "attack"];
    cargo(repository, &[&build[..], &FEATURES[..]].concat())?;
    let target = repository.target_directory()?;
    let mut attack = Command::new(target.join("debug").join("attack"));
    program::run(attack.args(args).env("SVC_BIN", attacked))
}

fn cargo<Argument: AsRef<std::ffi::OsStr>>(
    repository: &Repository,
    args: &[Argument],
) -> Result<()> {
    program::run(in_repository(repository).args(args))
}
