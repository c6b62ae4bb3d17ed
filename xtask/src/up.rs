//! `cargo xtask up`: starts the program as a new user does.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::program;
use crate::provision;
use crate::repository::Repository;
use crate::web;

/// Builds the release binary with cargo's own progress and becomes `svc up --demo`, so that signals
/// and the exit status are the program's.
pub(crate) fn run(repository: &Repository, args: &[String]) -> Result<()> {
    // Without npm the program has no dashboard, and prints a message.
    if let Err(error) = provision::npm(repository) {
        eprintln!("    {error:#}");
    }
    web::offer(repository);
    program::run(program::cargo().current_dir(repository.root()).args([
        "build",
        "--release",
        "--locked",
        "-p",
        "svc",
    ]))?;
    let binary = repository.target_directory()?.join("release").join("svc");
    let failed = Command::new(&binary).args(program_args(args)).exec();
    Err(failed).with_context(|| format!("cannot start {}", binary.display()))
}

/// The arguments of `svc`. A user may repeat `--demo`, which the program accepts once.
fn program_args(args: &[String]) -> impl Iterator<Item = &str> {
    let given = args.iter().map(String::as_str);
    ["up", "--demo"]
        .into_iter()
        .chain(given.filter(|arg| *arg != "--demo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_is_requested_once() {
        let args = ["--port", "0", "--demo"].map(str::to_owned);
        let passed: Vec<_> = program_args(&args).collect();
        assert_eq!(passed, ["up", "--demo", "--port", "0"]);
    }
}
