//! `cargo xtask attack`: hostile clients, services and agents against the program as it is shipped.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::program;
use crate::repository::Repository;
use crate::test::{FEATURES, in_repository};

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

/// One minute, as every change has to pass it.
///
/// The attacked program has the dependencies that the tests have built, and our own crates without
/// debug assertions and overflow checks: a defect that only an assertion prevents is found, as in the
/// release program, without the ten minutes that optimising 400 crates takes. `cargo xtask deep`
/// attacks the release program itself.
pub(crate) fn briefly(repository: &Repository) -> Result<()> {
    let mut build: Vec<String> = Vec::new();
    for package in packages(repository)? {
        for check in ["debug-assertions", "overflow-checks"] {
            build.push("--config".to_owned());
            build.push(format!("profile.dev.package.{package}.{check}=false"));
        }
    }
    let whole = ["build", "--locked", "--workspace", "--bin", "svc"];
    build.extend(whole.map(str::to_owned));
    build.extend(FEATURES.map(str::to_owned));
    cargo(repository, &build)?;
    // A copy: the next build of the tests puts its own program in the place of this one.
    let target = repository.target_directory()?;
    let directory = target.join("attack");
    fs::create_dir_all(&directory)?;
    let attacked = directory.join("svc");
    fs::copy(target.join("debug").join("svc"), &attacked).context("cannot copy the program")?;
    attack(
        repository,
        attacked,
        &["--seconds".to_owned(), "60".to_owned()],
    )
}

fn attack(repository: &Repository, attacked: PathBuf, args: &[String]) -> Result<()> {
    // The workspace is selected, so that dependencies have the features that the tests built.
    let build = ["build", "--locked", "--workspace", "--bin", "attack"];
    cargo(repository, &[&build[..], &FEATURES[..]].concat())?;
    let target = repository.target_directory()?;
    let mut attack = Command::new(target.join("debug").join("attack"));
    program::run(attack.args(args).env("SVC_BIN", attacked))
}

/// The names of the workspace's own packages.
fn packages(repository: &Repository) -> Result<Vec<String>> {
    let metadata = repository.metadata()?;
    let packages = metadata.get("packages").and_then(Value::as_array);
    let packages = packages.context("cargo metadata names no packages")?;
    let name = |package: &Value| Some(package.get("name")?.as_str()?.to_owned());
    Ok(packages.iter().filter_map(name).collect())
}

fn cargo<Argument: AsRef<std::ffi::OsStr>>(
    repository: &Repository,
    args: &[Argument],
) -> Result<()> {
    program::run(in_repository(repository).args(args))
}
