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
    /// Id of the process that has replaced it.
    successor: Option<u64>,
    ready: Value,
    /// Lines of its standard output, which its successor inherits.
    lines: mpsc::Receiver<String>,
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
        let (sender, lines) = mpsc::channel();
        let mut server = Self {
            child,
            successor: None,
            ready: Value::Null,
            lines,
            log: log.to_owned(),
        };
        let stdout = server.child.stdout.take().context("no pipe")?;
        // Keeps reading, because a process with a full or closed pipe would stop.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The receiver is dropped with the server.
                sender.send(line).ok();
            }
        });
        let line = match server.lines.recv_timeout(WAIT_LIMIT) {
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

    /// True if the process handles SIGUSR2, with which an engine is replaced. Its default action
    /// ends a process.
    pub(super) fn can_reload(&self) -> Result<bool> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.context("no SigCgt")?.trim(), 16)?;
        Ok(caught & SIGUSR2 != 0)
    }

    /// Replaces the engine by a new process of its program file, and waits for the end of the old
    /// one.
    pub(super) fn reload(&mut self) -> Result<()> {
        let before = self.ready.get("pid").cloned();
        signal("-USR2", self.child.id().into())?;
        while self.ready.get("pid") == before.as_ref() {
            let line = self.lines.recv_timeout(WAIT_LIMIT);
            let line = line.with_context(|| format!("it was not replaced: {}", self.log_end()))?;
            // Other lines have no id of a process.
            self.ready = serde_json::from_str(&line)?;
        }
        let successor = self.ready.get("pid").and_then(Value::as_u64);
        self.successor = Some(successor.context("no pid")?);
        self.wait_for_success()
    }

    fn wait_for_success(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        ensure!(
            status.success(),
            "it ended with {status}: {}",
            self.log_end()
        );
        Ok(())
    }

    /// Sends SIGTERM, and waits for a successful exit.
    pub(super) fn stop(mut self) -> Result<()> {
        if let Some(successor) = self.successor {
            signal("-TERM", successor)?;
            // It is not a child of this process, so only the end of its output shows its exit.
            loop {
                match self.lines.recv_timeout(WAIT_LIMIT) {
                    Ok(_line) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        bail!("it has not stopped: {}", self.log_end())
                    }
                }
            }
            self.successor = None;
            return Ok(());
        }
        signal("-TERM", self.child.id().into())?;
        self.wait_for_success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Each may already have exited.
        if let Some(successor) = self.successor {
            signal("-KILL", successor).ok();
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn signal(name: &str, process: u64) -> Result<()> {
    program::run(Command::new("kill").args([name, &process.to_string()]))
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
/// The bit of signal 12 in the masks of proc(5).
const SIGUSR2: u64 = 1 << 11;
/// Number of log lines.
const LINES: usize = 20;
