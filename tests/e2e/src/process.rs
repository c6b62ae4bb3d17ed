use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Runs a program that must succeed. Returns its output.
///
/// # Errors
/// The program fails; its output is part of the error.
pub fn run(command: &mut Command) -> Result<String> {
    command.stdin(Stdio::null());
    let output = command
        .output()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{} failed:\n{text}\n{}",
        command.get_program().display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

/// The command of a program and its standard input. The program inherits `listener` as the only socket
/// of a supervisor.
pub(crate) fn inheriting(
    program: &Path,
    listener: Option<&TcpListener>,
) -> Result<(Command, Stdio)> {
    let Some(listener) = listener else {
        return Ok((Command::new(program), Stdio::null()));
    };
    let mut shell = Command::new("/bin/sh");
    // The number of the process must be known before the program starts. The first inherited
    // descriptor is 3.
    let script = r#"export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" "$@" 3<&0 </dev/null"#;
    shell.args(["-c", script]).arg(program);
    Ok((shell, Stdio::from(OwnedFd::from(listener.try_clone()?))))
}

/// A running program, with its standard output line by line and its standard error in a file. It is
/// killed when the value is dropped.
pub struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
    log_path: PathBuf,
}

impl Process {
    /// Starts it. Its standard error goes to `log`.
    ///
    /// # Errors
    /// The program does not exist.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        Self::start_with_input(command, log, Stdio::null())
    }

    /// The same with a standard input.
    pub(crate) fn start_with_input(
        command: &mut Command,
        log: &Path,
        input: Stdio,
    ) -> Result<Self> {
        let mut child = command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(File::options().create(true).append(true).open(log)?)
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        let stdout = child.stdout.take().context("no standard output")?;
        LOGS.with_borrow_mut(|logs| logs.push(log.to_owned()));
        let (sender, lines) = mpsc::channel();
        // Reads to the end, so that a full pipe never blocks the program.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The receiver is dropped with the test.
                sender.send(line).ok();
            }
        });
        Ok(Self {
            child,
            lines,
            log_path: log.to_owned(),
        })
    }

    /// The next matching line. Earlier lines are dropped.
    pub(crate) fn wait_for_line(
        &self,
        what: &str,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Result<String> {
        let deadline = Instant::now() + OUTPUT_TIMEOUT;
        let mut last = String::new();
        loop {
            match self.lines.recv_timeout(deadline - Instant::now()) {
                Ok(line) if wanted(&line) => return Ok(line),
                Ok(other) => last = other,
                Err(RecvTimeoutError::Timeout) => {
                    bail!(
                        "{what} was expected within {OUTPUT_TIMEOUT:?}; the last line was `{last}`; {}",
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

    /// The next matching line of JSON. Earlier lines are dropped.
    ///
    /// # Errors
    /// No line matches in time, or the program exits.
    pub fn json(&self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Result<Value> {
        let parse = |line: &str| serde_json::from_str::<Value>(line).ok();
        let line =
            self.wait_for_line(what, |line| parse(line).is_some_and(|value| wanted(&value)))?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        // It may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Sends SIGTERM.
    ///
    /// # Errors
    /// It was already waited for, or the signal cannot be sent.
    pub fn terminate(&self) -> Result<()> {
        send_signal(self.child.id(), Signal::SIGTERM)
    }

    /// Sends SIGUSR2.
    ///
    /// # Errors
    /// It was already waited for, or the signal cannot be sent.
    pub fn ask_to_reload(&self) -> Result<()> {
        send_signal(self.child.id(), Signal::SIGUSR2)
    }

    /// True if it has exited. Unlike [`wait_for_exit`](Self::wait_for_exit) this does not depend on
    /// its output, which its successor inherits.
    ///
    /// # Errors
    /// Those of the system.
    pub fn has_exited(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits until it exits, and returns its exit code, or `None` if a signal ended it.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn wait_for_exit(&mut self) -> Result<Option<i32>> {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        // It has exited when its output ends, because no other process inherits it.
        loop {
            match self.lines.recv_timeout(deadline - Instant::now()) {
                Ok(_line) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(self.child.wait()?.code()),
                Err(RecvTimeoutError::Timeout) => {
                    bail!(
                        "the program was expected to end within {EXIT_TIMEOUT:?}; {}",
                        logs()
                    )
                }
            }
        }
    }

    /// The end of its log, for messages of failed tests.
    pub fn log(&self) -> String {
        end_of(&self.log_path)
    }
}

/// A process that another one has started in its place. It is killed when the value is dropped.
pub(crate) struct Successor {
    id: u32,
    /// Distinguishes it from a later process with the same id: this test does not wait for it, so the
    /// id is free when it has ended.
    started: Option<String>,
}

impl Successor {
    pub(crate) fn new(id: u32) -> Self {
        let started = start_time(id);
        Self { id, started }
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        send_signal(self.id, signal)
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if start_time(self.id) == self.started {
            // It may have exited already.
            self.signal(Signal::SIGKILL).ok();
        }
    }
}

/// The time at which a running process started, in the system's own unit (`proc_pid_stat(5)`, field 22).
fn start_time(process: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses, which may contain any character.
    let (_, from_third) = stat.rsplit_once(')')?;
    from_third.split_whitespace().nth(19).map(str::to_owned)
}

fn send_signal(process: u32, signal: Signal) -> Result<()> {
    let process = Pid::from_raw(i32::try_from(process).context("a process id")?);
    kill(process, signal).with_context(|| signal.to_string())
}

thread_local! {
    /// The logs of the programs that the test on this thread has started.
    static LOGS: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// The end of every log of this test, for messages of failed tests.
pub(crate) fn logs() -> String {
    LOGS.with_borrow(|logs| {
        let mut ends: Vec<_> = logs.iter().map(|log| end_of(log)).collect();
        // Restarted programs append to their log.
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

/// Lines of a log in the message of a failed test.
const LOG_LINES: usize = 60;

/// Enough for a debug build on a busy machine with two processors.
const OUTPUT_TIMEOUT: Duration = Duration::from_mins(1);

/// Time limit for the exit of a program. It is no longer than the drains in tests of the second
/// signal, so that they fail if the program exits only at the end of its drain.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);
