use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{Process, Svc, node};

/// The interpreter with the published SDK.
///
/// # Errors
/// It is not installed: run `cargo xtask test`.
pub fn python() -> Result<PathBuf> {
    match env::var_os("SVC_TEST_PYTHON") {
        Some(python) => Ok(python.into()),
        None => bail!("SVC_TEST_PYTHON is not set: run `cargo xtask test`"),
    }
}

/// The command for a script: one of `tests/node` by its extension, or else one of
/// `tests/e2e/python`.
pub(crate) fn command(name: &str) -> Result<Command> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_node = Path::new(name)
        .extension()
        .is_some_and(|kind| kind == "mjs");
    let (interpreter, directory) = if is_node {
        (node()?, here.join("../node"))
    } else {
        (python()?, here.join("python"))
    };
    let mut command = Command::new(interpreter);
    command
        .arg(directory.join(name))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}

/// Starts a script of `tests/e2e/python` that runs against the engine until it is killed, and prints
/// lines of JSON.
///
/// # Errors
/// The interpreter is not installed: run `cargo xtask test`.
pub fn long_script(svc: &Svc, name: &str, args: &[&str]) -> Result<Process> {
    let mut command = command(name)?;
    command
        .args(args)
        .env("SVC_TEST_ENGINE", svc.address())
        .env("SVC_TEST_CA_FILE", svc.ca_file())
        .env("SVC_TEST_TOKEN", svc.token());
    Process::start(&mut command, &svc.directory().join("script.log"))
}

/// Runs a script of `tests/e2e/python` against the engine, and returns the results that it prints.
///
/// # Errors
/// The script failed; its output and the engine's log are part of the error.
pub fn script(svc: &Svc, name: &str, args: &[&str], env: &[(&str, &str)]) -> Result<Value> {
    let output = Command::new(python()?)
        .arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("python")
                .join(name),
        )
        .args(args)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SVC_TEST_ENGINE", svc.address())
        .env("SVC_TEST_CA_FILE", svc.ca_file())
        .env("SVC_TEST_TOKEN", svc.token())
        .envs(env.iter().copied())
        .output()
        .with_context(|| format!("running {name}"))?;
    if !output.status.success() {
        bail!(
            "{name} failed:\n{}\nthe engine's log:\n{}",
            String::from_utf8_lossy(&output.stderr),
            svc.log()
        );
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{name} printed no JSON"))
}
