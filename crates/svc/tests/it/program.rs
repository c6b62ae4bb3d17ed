//! Runs the program in a home of its own, without the environment of the machine.

use std::{
    io::ErrorKind,
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use nix::{sys::signal::Signal, unistd::Pid};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdout, Command},
    time::timeout,
};

/// Longer than anything here takes, shorter than a person waits.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// How long the program lets go on what is under way when it ends. What waits for nothing is faster.
pub(crate) const DRAIN: Duration = Duration::from_secs(30);

/// A home directory and what runs in it.
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
    pub(crate) async fn run(&self, args: &[&str]) -> Ended {
        Ended::of_command(self.command(args)).await
    }

    /// Runs a command to its end with bytes on its stdin.
    pub(crate) async fn run_with_input(&self, args: &[&str], input: &[u8]) -> Ended {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A program that ends early does not read it all.
        if let Err(error) = stdin.write_all(input).await {
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        }
        drop(stdin);
        Ended::of(
            timeout(SOON, child.wait_with_output())
                .await
                .unwrap()
                .unwrap(),
        )
    }

    /// Starts a command that stays.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::spawn(&mut self.command(args))
    }
}

/// What a command left.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Runs a command to its end.
    pub(crate) async fn of_command(mut command: Command) -> Self {
        Self::of(timeout(SOON, command.output()).await.unwrap().unwrap())
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

/// A command that runs.
pub(crate) struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    stderr: ChildStderr,
}

impl Running {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let stderr = child.stderr.take().unwrap();
        Self {
            child,
            lines,
            stderr,
        }
    }

    /// The next line, which must be JSON.
    pub(crate) async fn json(&mut self) -> Value {
        let line = timeout(SOON, self.lines.next_line())
            .await
            .unwrap()
            .unwrap();
        let Some(line) = line else {
            let mut stderr = String::new();
            self.stderr.read_to_string(&mut stderr).await.unwrap();
            panic!("the output ended: {stderr}");
        };
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// The first line from here on that is wanted.
    pub(crate) async fn json_where(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.json().await;
            if wanted(&line) {
                return line;
            }
        }
    }

    /// The lines up to the one that holds a text.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            let line = timeout(SOON, self.lines.next_line()).await.unwrap();
            let Some(line) = line.unwrap() else {
                panic!("the output ended: {seen}");
            };
            seen.push_str(&line);
            seen.push('\n');
        }
        seen
    }

    /// Waits until stderr holds a text, and gives what it held until then.
    pub(crate) async fn says(&mut self, text: &str) -> String {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(text) {
            let mut buffer = [0; 1024];
            let read = timeout(SOON, self.stderr.read(&mut buffer))
                .await
                .unwrap()
                .unwrap();
            assert_ne!(read, 0, "stderr ended: {}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&buffer[..read]);
        }
        String::from_utf8_lossy(&seen).into_owned()
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
    pub(crate) async fn ended(mut self) -> Ended {
        let mut stdout = String::new();
        let mut stderr = String::new();
        let all = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                stdout.push_str(&line);
                stdout.push('\n');
            }
            self.stderr.read_to_string(&mut stderr).await.unwrap();
            self.child.wait().await.unwrap()
        };
        let status = timeout(SOON, all).await.unwrap();
        Ended {
            code: status.code(),
            stdout,
            stderr,
        }
    }

    /// Ends it as a supervisor does.
    pub(crate) async fn terminate(self) -> Ended {
        self.signal(Signal::SIGTERM);
        self.ended().await
    }
}
