//! Runs the program in its own home, without the environment of the machine.

use std::{
    cell::RefCell,
    ffi::OsStr,
    io::ErrorKind,
    path::Path,
    process::{Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use nix::{sys::signal::Signal, unistd::Pid};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdout, Command},
    sync::watch,
    time::timeout,
};

/// Longer than any step of these tests takes.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// Time that the program gives its open streams when it stops. Without open streams it stops
/// faster.
pub(crate) const DRAIN: Duration = Duration::from_secs(30);

/// A home directory and the programs that run in it.
pub(crate) struct Home {
    pub(crate) directory: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command
            .args(args)
            .env_clear()
            .env("HOME", self.path())
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::of_command(self.command(args)).await
    }

    /// Runs a command to its end with bytes on its stdin.
    pub(crate) async fn run_with_input(&self, args: &[&str], input: &[u8]) -> CommandOutput {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // Written while the output is read: a program whose output is not read stops reading.
        let write = async {
            // A program that exits early does not read all of it.
            if let Err(error) = stdin.write_all(input).await {
                assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            }
            drop(stdin);
        };
        let run = async { tokio::join!(write, child.wait_with_output()).1 };
        CommandOutput::of(soon("the end of the program", run).await.unwrap())
    }

    /// Starts a command that keeps running.
    pub(crate) fn start(&self, args: &[&str]) -> RunningCommand {
        RunningCommand::spawn(&mut self.command(args))
    }
}

/// Result of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
    /// Runs a command to its end.
    pub(crate) async fn of_command(mut command: Command) -> Self {
        Self::of(
            soon("the end of the program", command.output())
                .await
                .unwrap(),
        )
    }

    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }
}

/// A running command.
pub(crate) struct RunningCommand {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    transcript: Arc<Transcript>,
    /// Bytes of the standard error that [`Self::wait_for_stderr`] has passed.
    passed: usize,
}

impl RunningCommand {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let transcript = Transcript::of(command, child.stderr.take().unwrap());
        Self {
            child,
            lines,
            transcript,
            passed: 0,
        }
    }

    /// The next line of the standard output, or `None` at its end.
    async fn line(&mut self, expected: &str) -> Option<String> {
        let line = soon(expected, self.lines.next_line()).await.unwrap();
        if let Some(line) = &line {
            self.transcript.last_line.lock().unwrap().clone_from(line);
        }
        line
    }

    /// The next line, which must be JSON.
    pub(crate) async fn json(&mut self) -> Value {
        let Some(line) = self.line("a line of JSON").await else {
            panic!(
                "a line of JSON was expected, and the output ended{}",
                logs()
            );
        };
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// The next line that matches.
    pub(crate) async fn json_where(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.json().await;
            if wanted(&line) {
                return line;
            }
        }
    }

    /// The lines up to the first one with this text.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            let Some(line) = self.line(text).await else {
                panic!(
                    "`{text}` was expected, and the output ended: {seen}{}",
                    logs()
                );
            };
            seen.push_str(&line);
            seen.push('\n');
        }
        seen
    }

    /// Waits until stderr contains a text that no earlier call has found. Returns the output since
    /// the previous match.
    pub(crate) async fn wait_for_stderr(&mut self, text: &str) -> String {
        let mut written = self.transcript.written.subscribe();
        loop {
            let is_over = written.borrow_and_update().is_over;
            let stderr = self.transcript.stderr();
            let new = &stderr[self.passed..];
            if let Some(at) = new.find(text) {
                let line = new[at..].find('\n').map_or(text.len(), |length| length + 1);
                let new = new.to_owned();
                self.passed += at + line;
                return new;
            }
            assert!(
                !is_over,
                "`{text}` was expected, and stderr ended{}",
                logs()
            );
            soon(text, written.changed()).await.unwrap();
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = self
            .child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .unwrap();
        nix::sys::signal::kill(Pid::from_raw(id), signal).unwrap();
    }

    /// Waits for the end.
    pub(crate) async fn ended(mut self) -> CommandOutput {
        let mut stdout = String::new();
        while let Some(line) = self.line("the end of the output").await {
            stdout.push_str(&line);
            stdout.push('\n');
        }
        let mut written = self.transcript.written.subscribe();
        let is_over = written.wait_for(|written| written.is_over);
        drop(soon("the end of stderr", is_over).await.unwrap());
        let status = soon("the end of the program", self.child.wait()).await;
        let stderr = self.transcript.stderr();
        CommandOutput {
            code: status.unwrap().code(),
            stdout,
            stderr: stderr[self.passed..].to_owned(),
        }
    }

    /// Stops it like a supervisor.
    pub(crate) async fn terminate(self) -> CommandOutput {
        self.signal(Signal::SIGTERM);
        self.ended().await
    }
}

/// The output of a program, for tests and for the messages of failed ones.
struct Transcript {
    command: String,
    stderr: Mutex<Vec<u8>>,
    written: watch::Sender<StderrText>,
    /// The last line of the standard output that a test has read.
    last_line: Mutex<String>,
}

/// Standard error that was read so far.
#[derive(Default)]
struct StderrText {
    bytes: usize,
    is_over: bool,
}

thread_local! {
    /// The programs of the test on this thread.
    static TRANSCRIPTS: RefCell<Vec<Arc<Transcript>>> = const { RefCell::new(Vec::new()) };
}

impl Transcript {
    /// Reads the standard error to its end, so that a program never blocks on a test that does not
    /// read it.
    fn of(command: &Command, mut stderr: ChildStderr) -> Arc<Self> {
        let args = command.as_std().get_args().map(OsStr::to_string_lossy);
        let transcript = Arc::new(Self {
            command: args.collect::<Vec<_>>().join(" "),
            stderr: Mutex::default(),
            written: watch::Sender::default(),
            last_line: Mutex::default(),
        });
        TRANSCRIPTS.with_borrow_mut(|all| all.push(Arc::clone(&transcript)));
        let own = Arc::clone(&transcript);
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
                own.stderr
                    .lock()
                    .unwrap()
                    .extend_from_slice(&buffer[..read]);
                own.written.send_modify(|written| written.bytes += read);
            }
            own.written.send_modify(|written| written.is_over = true);
        });
        transcript
    }

    /// Up to the last complete character.
    fn stderr(&self) -> String {
        let bytes = self.stderr.lock().unwrap();
        match std::str::from_utf8(&bytes) {
            Ok(text) => text.to_owned(),
            Err(error) => String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned(),
        }
    }
}

/// The last output of every program of this test.
fn logs() -> String {
    let end = |transcript: &Arc<Transcript>| {
        let stderr = transcript.stderr();
        let skipped = stderr.lines().count().saturating_sub(LOG_LINES);
        let stderr: Vec<_> = stderr.lines().skip(skipped).collect();
        format!(
            "\n---- svc {}\nlast line read: {}\n{}",
            transcript.command,
            transcript.last_line.lock().unwrap(),
            stderr.join("\n")
        )
    };
    TRANSCRIPTS.with_borrow(|all| all.iter().map(end).collect())
}

/// Lines of each log in the message of a failed test.
const LOG_LINES: usize = 40;

/// Waits for an event that has to happen soon.
pub(crate) async fn soon<T>(expected: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = timeout(SOON, future).await else {
        panic!("`{expected}` was expected within {SOON:?}{}", logs());
    };
    value
}
