//! Test programs: finding them, and running one of them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::program;
use crate::provision::Provisions;
use crate::repository::Repository;
use crate::test::{FEATURES, svc};
use crate::watch;

/// A program that cargo built from the tests of one target.
pub(super) struct Program {
    pub(super) package: String,
    /// The name of the target: that of the package's library, or of a file in `tests`.
    target: String,
    /// The root source file of the target.
    pub(super) root: PathBuf,
    executable: PathBuf,
    /// Its working directory under cargo.
    directory: PathBuf,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.package, self.target)
    }
}

/// Result of a test in one run.
pub(super) struct Outcome {
    /// Its module path.
    pub(super) test: String,
    pub(super) passed: bool,
    pub(super) time: Duration,
    /// The output of a failed test.
    pub(super) log: String,
}

/// Time limit of a program under load: three times the limit of `cargo xtask test`.
const LONGEST: Duration = Duration::from_mins(45);

/// Builds all test programs of the workspace, with the features of `cargo xtask test`.
pub(super) fn build(repository: &Repository) -> Result<Vec<Program>> {
    let whole = ["test", "--workspace", "--locked", "--no-run"];
    let mut cargo = program::cargo();
    cargo
        .current_dir(repository.root())
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
    /// Runs every test once, in the order of the seed.
    pub(super) fn run(
        &self,
        repository: &Repository,
        provisions: &Provisions,
        seed: u64,
    ) -> Result<Vec<Outcome>> {
        let log = repository.target_directory()?.join("soak.json");
        let mut command = Command::new(&self.executable);
        command
            .args(["-Z", "unstable-options", "--format", "json"])
            .args(["--report-time", "--shuffle-seed", &seed.to_string()])
            // Enables unstable options of the test harness on the stable channel.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .env("SVC_BIN", svc(repository)?)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(Stdio::null())
            .process_group(0);
        for (name, value) in provisions.environment() {
            command.env(name, value);
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {self}"))?;
        let group = format!("-{}", child.id());
        let status = watch::wait(child, LONGEST);
        // Ends processes that a test left running.
        program::succeeds(Command::new("kill").args(["-KILL", "--", &group]));
        let is_over = status?.is_some();
        let text = fs::read(&log)?;
        let events = Events::read(&String::from_utf8_lossy(&text));
        if !is_over || !events.running.is_empty() {
            let running: Vec<_> = events.running.into_iter().collect();
            bail!("{self} did not finish: {}", running.join(", "));
        }
        Ok(events.outcomes)
    }
}

/// The events of the test harness.
#[derive(Default)]
struct Events {
    outcomes: Vec<Outcome>,
    /// Tests that started and have not ended.
    running: BTreeSet<String>,
}

impl Events {
    /// Reads the lines that are events; tests may write to the same output.
    fn read(text: &str) -> Self {
        let mut events = Self::default();
        for line in text.lines() {
            let Ok(event) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            if event.get("type") != Some(&Value::from("test")) {
                continue;
            }
            let text = |key| event.get(key).and_then(Value::as_str).unwrap_or_default();
            let test = text("name").to_owned();
            match text("event") {
                "started" => {
                    events.running.insert(test);
                }
                kind @ ("ok" | "failed") => {
                    events.running.remove(&test);
                    let seconds = event.get("exec_time").and_then(Value::as_f64);
                    events.outcomes.push(Outcome {
                        test,
                        passed: kind == "ok",
                        time: Duration::from_secs_f64(seconds.unwrap_or_default()),
                        log: text("stdout").to_owned(),
                    });
                }
                // A slow test is still running; an ignored test proves nothing.
                "ignored" => {
                    events.running.remove(&test);
                }
                _ => {}
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_the_harness_become_outcomes() {
        let text = r#"{ "type": "suite", "event": "started", "test_count": 3 }
{ "type": "test", "event": "started", "name": "a::b" }
{ "type": "test", "event": "started", "name": "a::c" }
a line of a test
{ "type": "test", "name": "a::b", "event": "ok", "exec_time": 0.5 }
{ "type": "test", "event": "started", "name": "a::d" }
{ "type": "test", "name": "a::c", "event": "failed", "exec_time": 1.0, "stdout": "why\n" }
{ "type": "test", "event": "timeout", "name": "a::d" }"#;
        let events = Events::read(text);
        let outcomes: Vec<_> = events
            .outcomes
            .iter()
            .map(|outcome| (outcome.test.as_str(), outcome.passed, outcome.log.as_str()))
            .collect();
        assert_eq!(outcomes, [("a::b", true, ""), ("a::c", false, "why\n")]);
        assert_eq!(events.running.into_iter().collect::<Vec<_>>(), ["a::d"]);
    }
}
