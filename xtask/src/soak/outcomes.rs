//! One run of a test program, and the results of its tests.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::program;
use crate::programs::Program;
use crate::provision::Provisions;
use crate::repository::Repository;
use crate::watch;

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

/// Runs every test of the program once, in the order of the seed.
pub(super) fn run(
    program: &Program,
    repository: &Repository,
    provisions: &Provisions,
    seed: u64,
) -> Result<Vec<Outcome>> {
    let log = repository.target_directory()?.join("soak.json");
    let mut command = program.command(repository, provisions)?;
    command
        .args(["-Z", "unstable-options", "--format", "json"])
        .args(["--report-time", "--shuffle-seed", &seed.to_string()])
        // Enables unstable options of the test harness on the stable channel.
        .env("RUSTC_BOOTSTRAP", "1")
        .stdout(File::create(&log)?)
        .stderr(Stdio::null());
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let group = format!("-{}", child.id());
    let status = watch::wait(child, LONGEST);
    // Ends processes that a test left running.
    program::succeeds(Command::new("kill").args(["-KILL", "--", &group]));
    let is_over = status?.is_some();
    let text = fs::read(&log)?;
    let events = Events::read(&String::from_utf8_lossy(&text));
    if !is_over || !events.running.is_empty() {
        let running: Vec<_> = events.running.into_iter().collect();
        bail!("{program} did not finish: {}", running.join(", "));
    }
    Ok(events.outcomes)
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
