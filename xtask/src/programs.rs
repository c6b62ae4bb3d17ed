//! Test programs: building, finding and starting them.

use std::fmt;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::program;
use crate::provision::Provisions;
use crate::repository::Repository;
use crate::workspace::{FEATURES, in_repository, svc};

/// A program that cargo built from the tests of one target.
pub(crate) struct Program {
    pub(crate) package: String,
    /// The name of the target: that of the package's library, or of a file in `tests`.
    target: String,
    /// The root source file of the target.
    pub(crate) root: PathBuf,
    executable: PathBuf,
    /// Its working directory under cargo.
    directory: PathBuf,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.package, self.target)
    }
}

/// Builds all test programs of the workspace, with the features of `cargo xtask test`.
pub(crate) fn build(repository: &Repository) -> Result<Vec<Program>> {
    let whole = ["test", "--workspace", "--locked", "--no-run"];
    let mut cargo = in_repository(repository);
    cargo
        .args(whole)
        .args(FEATURES)
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit());
    let messages = program::output(&mut cargo)?;
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo wrote no JSON")?;
        programs.extend(of_message(&message));
    }
    Ok(programs)
}

/// The program of a `compiler-artifact` message, if it is a test program.
fn of_message(message: &Value) -> Option<Program> {
    let text = |value: &Value| Some(value.as_str()?.to_owned());
    if message.pointer("/profile/test")? != &Value::Bool(true) {
        return None;
    }
    let executable = text(message.get("executable")?)?;
    let directory = Path::new(message.get("manifest_path")?.as_str()?).parent()?;
    let package = fs::read_to_string(directory.join("Cargo.toml")).ok()?;
    let package = package
        .lines()
        .find_map(|line| line.strip_prefix("name = \""))?;
    Some(Program {
        package: package.trim_end_matches('"').to_owned(),
        target: text(message.pointer("/target/name")?)?,
        root: message.pointer("/target/src_path")?.as_str()?.into(),
        executable: executable.into(),
        directory: directory.to_owned(),
    })
}

impl Program {
    /// The command that runs it as cargo does, with what the machine was provisioned with. The
    /// program leads a process group.
    pub(crate) fn command(
        &self,
        repository: &Repository,
        provisions: &Provisions,
    ) -> Result<Command> {
        let mut command = Command::new(&self.executable);
        command
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .env("SVC_BIN", svc(repository)?)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .process_group(0);
        for (name, value) in provisions.environment() {
            command.env(name, value);
        }
        Ok(command)
    }
}
