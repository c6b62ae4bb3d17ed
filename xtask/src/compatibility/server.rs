//! A process that reports its readiness in one line of JSON.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::program;

/// A running process; dropping it ends the process.
pub(super) struct Server {
    child: Child,
    ready: Value,
    log: PathBuf,
}

impl Server {
    /// Starts the command and waits for its first line. Other output is in the file `log`.
    pub(super) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let mut server = Self {
            child,
            ready: Value::Null,
            log: log.to_owned(),
        };
        let stdout = server.child.stdout.take().context("no pipe")?;
        let (first, line) = mpsc::channel();
        // Keeps reading, because a process with a full or closed pipe would stop.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Later lines have no receiver.
                first.send(line).ok();
            }
        });
        let line = match line.recv_timeout(WAIT_LIMIT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => bail!("it is not ready: {}", server.log_end()),
            Err(RecvTimeoutError::Disconnected) => bail!("it ended: {}", server.log_end()),
        };
        server.ready = serde_json::from_str(&line)
            .with_context(|| format!("its first line is {line:?}: {}", server.log_end()))?;
        ensure!(server.ready.get("error").is_none(), "it failed: {line}");
        Ok(server)
    }

    /// Its first line.
    pub(super) fn ready(&self) -> &Value {
        &self.ready
    }

    /// A member of its first line.
    pub(super) fn text(&self, name: &str) -> Result<String> {
        text(&self.ready, name)
    }

    /// The end of its log.
    pub(super) fn log_end(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let from = lines.len().saturating_sub(LINES);
        lines.get(from..).unwrap_or_default().join("\n")
    }

    /// Sends SIGTERM, and waits for a successful exit.
    pub(super) fn stop(mut self) -> Result<()> {
        let id = self.child.id().to_string();
        program::run(Command::new("kill").args(["-TERM", &id]))?;
        let status = self.child.wait()?;
        ensure!(
            status.success(),
            "it ended with {status}: {}",
            self.log_end()
        );
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may already have exited.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(super) fn text(value: &Value, name: &str) -> Result<String> {
    let text = value.get(name).and_then(Value::as_str);
    text.map(str::to_owned)
        .with_context(|| format!("no {name} in {value}"))
}

/// Retries until success, or returns the last failure.
#[expect(
    clippy::disallowed_methods,
    reason = "other programs tell no event: they are asked again after a pause"
)]
pub(super) fn eventually(expected: &str, mut attempt: impl FnMut() -> Result<()>) -> Result<()> {
    let end = Instant::now() + WAIT_LIMIT;
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > end => {
                return Err(error.context(format!("{expected} did not come")));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// For one step of unoptimised programs on a busy machine.
const WAIT_LIMIT: Duration = Duration::from_mins(1);
/// Delay between two attempts, each of which starts a program.
const PAUSE: Duration = Duration::from_millis(200);
/// Number of log lines.
const LINES: usize = 20;
