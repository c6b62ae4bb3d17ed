//! Test programs: building, finding and starting them.

use std::fmt;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::program;
use crate::provision::Provisions;
use crate::repository::Repository;
use crate::test_set::TestSet;
use crate::workspace::{FEATURES, in_repository, release, svc};

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

/// Builds all test programs of the workspace, with the features of `cargo xtask test`, and returns
/// those of a set.
pub(crate) fn build(repository: &Repository, set: TestSet) -> Result<Vec<Program>> {
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
        programs.extend(of_message(&message)?);
    }
    programs.retain(|program| TestSet::of_target(&program.target) == set);
    ensure!(!programs.is_empty(), "there is no test program of this set");
    Ok(programs)
}

/// The program of a `compiler-artifact` message, if it is a test program.
///
/// # Errors
/// The message or the manifest of the package is incomplete. A program that is left out would be a
/// test that passes.
fn of_message(message: &Value) -> Result<Option<Program>> {
    let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
    let is_test = message.pointer("/profile/test") == Some(&Value::Bool(true));
    let Some(executable) = text("/executable").filter(|_| is_test) else {
        return Ok(None);
    };
    let required = |pointer: &str| {
        text(pointer).with_context(|| format!("cargo wrote no {pointer} of {executable}"))
    };
    let manifest = Path::new(required("/manifest_path")?);
    let directory = manifest.parent().context("a manifest without a folder")?;
    let package = fs::read_to_string(manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let package = package
        .lines()
        .find_map(|line| line.strip_prefix("name = \""))
        .with_context(|| format!("{} names no package", manifest.display()))?;
    Ok(Some(Program {
        package: package.trim_end_matches('"').to_owned(),
        target: required("/target/name")?.to_owned(),
        root: required("/target/src_path")?.into(),
        executable: executable.into(),
        directory: directory.to_owned(),
    }))
}

impl Program {
    /// The command that runs it as cargo does, with the paths of the installed programs in its
    /// environment. The program leads a process group. The tested program is the one that cargo builds
    /// with the tests. For slow tests it is that of the release profile, and the other one is a
    /// different build of it.
    pub(crate) fn command(
        &self,
        repository: &Repository,
        provisions: &Provisions,
    ) -> Result<Command> {
        let mut command = Command::new(&self.executable);
        match TestSet::of_target(&self.target) {
            TestSet::Change => command.env("SVC_BIN", svc(repository)?),
            TestSet::Deep => command
                .env("SVC_BIN", release(repository)?)
                .env("SVC_TEST_OTHER_BUILD", svc(repository)?),
        };
        command
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .process_group(0);
        for (name, value) in provisions.environment() {
            command.env(name, value);
        }
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(target: &str, is_test: bool) -> Value {
        json!({
            "manifest_path": concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
            "target": {"name": target, "src_path": "/src/main.rs"},
            "profile": {"test": is_test},
            "executable": "/target/debug/deps/x",
        })
    }

    /// `cargo xtask test` must not run the slow tests, and `cargo xtask deep` must run them.
    #[test]
    fn a_target_belongs_to_one_set_by_its_name() {
        for (target, set) in [("it", TestSet::Change), ("deep", TestSet::Deep)] {
            let program = of_message(&message(target, true)).unwrap().unwrap();
            assert_eq!(program.package, "xtask");
            assert_eq!(TestSet::of_target(&program.target), set);
        }
        assert!(of_message(&message("it", false)).unwrap().is_none());
    }

    #[test]
    fn an_incomplete_message_of_a_test_program_is_an_error() {
        for missing in ["manifest_path", "target"] {
            let mut incomplete = message("it", true);
            incomplete.as_object_mut().unwrap().remove(missing);
            assert!(of_message(&incomplete).is_err(), "{missing}");
        }
    }
}
