use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A program that runs: its standard output line by line, its standard error in a file. It is
/// killed when the value is dropped.
pub struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
    log: PathBuf,
}

impl Process {
    /// Starts it. Its standard error goes to `log`.
    ///
    /// # Errors
    /// It is not there.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::options().create(true).append(true).open(log)?)
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        let stdout = child.stdout.take().context("no standard output")?;
        LOGS.with_borrow_mut(|logs| logs.push(log.to_owned()));
        let (sender, lines) = mpsc::channel();
        // Reads on to the end, so that the program never waits for a reader.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The receiver is gone with the test.
                sender.send(line).ok();
            }
        });
        Ok(Self {
            child,
            lines,
            log: log.to_owned(),
        })
    }

    /// The first line from here on that is wanted; those before it are gone.
    pub(crate) fn line(&self, what: &str, mut wanted: impl FnMut(&str) -> bool) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut last = String::new();
        loop {
            match self.lines.recv_timeout(deadline - Instant::now()) {
                Ok(line) if wanted(&line) => return Ok(line),
                Ok(other) => last = other,
                Err(RecvTimeoutError::Timeout) => {
                    bail!(
                        "{what} was expected within {PATIENCE:?}; the last line was `{last}`; {}",
                        logs()
                    )
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!(
                        "{what} was expected, and the program ended; the last line was `{last}`; {}",
                        logs()
                    )
                }
            }
        }
    }

    /// The first line of JSON from here on that is wanted; those before it are gone.
    ///
    /// # Errors
    /// It does not come in time, or the program ends.
    pub fn json(&self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Result<Value> {
        let parse = |line: &str| serde_json::from_str::<Value>(line).ok();
        let line = self.line(what, |line| parse(line).is_some_and(|value| wanted(&value)))?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it without a word: SIGKILL.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Asks it to end: SIGTERM.
    ///
    /// # Errors
    /// It has ended already.
    pub fn terminate(&self) -> Result<()> {
        let pid = i32::try_from(self.child.id()).context("a process id")?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).context("SIGTERM")
    }

    /// Waits until it ends, and gives its exit code; `None` where a signal ended it.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn ended(&mut self) -> Result<Option<i32>> {
        let deadline = Instant::now() + ENDING;
        // The end of its output is its end: nothing inherits it.
        loop {
            match self.lines.recv_timeout(deadline - Instant::now()) {
                Ok(_line) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(self.child.wait()?.code()),
                Err(RecvTimeoutError::Timeout) => {
                    bail!(
                        "the program was expected to end within {ENDING:?}; {}",
                        logs()
                    )
                }
            }
        }
    }

    /// The end of what it logged, for messages of failed tests.
    pub fn log(&self) -> String {
        end_of(&self.log)
    }
}

thread_local! {
    /// The logs of the programs that the test on this thread has started.
    static LOGS: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// The end of every log of this test, for messages of failed tests.
pub(crate) fn logs() -> String {
    LOGS.with_borrow(|logs| {
        let mut ends: Vec<_> = logs.iter().map(|log| end_of(log)).collect();
        // Programs that are started again write on to their log.
        ends.dedup();
        ends.join("\n")
    })
}

fn end_of(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let skip = lines.len().saturating_sub(LOG_LINES);
    let tail = lines.into_iter().skip(skip).collect::<Vec<_>>().join("\n");
    let name = log.file_name().unwrap_or_default().display();
    format!("the end of {name}:\n{tail}")
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a failed test shows of a log.
const LOG_LINES: usize = 60;

/// A debug build on a busy machine with two processors needs less.
const PATIENCE: Duration = Duration::from_mins(1);

/// For the end of a program. No longer than what is under way may go on after the first signal: what the
/// second one ends is faster.
const ENDING: Duration = Duration::from_secs(30);
