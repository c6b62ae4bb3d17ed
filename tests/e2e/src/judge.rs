use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::script::command;

/// Result of a script that checks a table of cases.
#[derive(Debug)]
pub struct Verdict {
    /// Number of checked cases.
    pub run_count: u64,
    /// The cases whose result differs from its table.
    pub failed: Vec<String>,
}

/// Runs a script of `tests/e2e/python` or `tests/node` that checks cases, with `world` as argument.
///
/// # Errors
/// It fails to run; its output is part of the error.
pub fn judge(name: &str, world: &Value) -> Result<Verdict> {
    let output = command(name)?
        .arg(world.to_string())
        .output()
        .with_context(|| format!("running {name}"))?;
    ensure!(
        output.status.success(),
        "{name} in {world} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let found: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{name} printed no JSON"))?;
    let wrong = found["wrong"]
        .as_array()
        .context("no list of failed cases")?;
    let wrong = wrong.iter().map(|case| match case.as_str() {
        Some(text) => text.to_owned(),
        None => case.to_string(),
    });
    Ok(Verdict {
        run_count: found["ran"].as_u64().context("no count")?,
        failed: wrong.collect(),
    })
}

/// A program that `cargo xtask test` or `cargo xtask deep` installs, found by its environment
/// variable.
///
/// # Errors
/// It was not installed.
pub fn provided(variable: &str) -> Result<PathBuf> {
    match std::env::var_os(variable) {
        Some(program) => Ok(program.into()),
        None => bail!(
            "{variable} is not set: run `cargo xtask test`, or for the tests in `tests/deep` \
             `cargo xtask deep`"
        ),
    }
}
