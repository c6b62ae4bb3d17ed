//! A user at a terminal.

use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    process::Stdio,
};

use nix::{
    pty::openpty,
    sys::{
        signal::{Signal, kill},
        termios::{LocalFlags, tcgetattr},
    },
    unistd::Pid,
};
use tokio::io::AsyncReadExt;

use super::program::{Home, SOON};

/// A command whose stdin is a terminal.
pub(crate) struct TerminalCommand {
    child: tokio::process::Child,
    terminal: File,
}

impl TerminalCommand {
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        Self::spawn(&mut home.command(args))
    }

    pub(crate) fn spawn(command: &mut tokio::process::Command) -> Self {
        let pty = openpty(None, None).unwrap();
        let (master, slave): (OwnedFd, OwnedFd) = (pty.master, pty.slave);
        let child = command.stdin(Stdio::from(slave)).spawn().unwrap();
        Self {
            child,
            terminal: File::from(master),
        }
    }

    /// The stderr output up to a text.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        let stderr = self.child.stderr.as_mut().unwrap();
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(text) {
            let byte = tokio::time::timeout(SOON, stderr.read_u8()).await.unwrap();
            let Ok(byte) = byte else {
                panic!("stderr ended: {}", String::from_utf8_lossy(&seen));
            };
            seen.push(byte);
        }
        String::from_utf8(seen).unwrap()
    }

    pub(crate) fn answer(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }

    /// True if the terminal shows its input, and its keys send signals.
    pub(crate) fn is_normal(&self) -> bool {
        let normal = LocalFlags::ECHO | LocalFlags::ISIG;
        let now = tcgetattr(&self.terminal).unwrap();
        now.local_flags.contains(normal)
    }

    /// Sends a signal to the command.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill(Pid::from_raw(id), signal).unwrap();
    }

    /// Waits for the end. Returns the number of the signal that caused it.
    pub(crate) async fn ended_by(&mut self) -> Option<i32> {
        let status = tokio::time::timeout(SOON, self.child.wait());
        status.await.unwrap().unwrap().signal()
    }

    /// Waits for the end. True if it was a success.
    pub(crate) async fn succeeded(&mut self) -> bool {
        let status = tokio::time::timeout(SOON, self.child.wait());
        status.await.unwrap().unwrap().success()
    }

    pub(crate) async fn ended(self) -> (Option<i32>, String) {
        let output = tokio::time::timeout(SOON, self.child.wait_with_output());
        let output = output.await.unwrap().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    }

    /// Waits for the end. Returns the terminal's echo of the input.
    pub(crate) async fn echoed(mut self) -> String {
        let status = tokio::time::timeout(SOON, self.child.wait());
        assert_eq!(status.await.unwrap().unwrap().code(), Some(0));
        let mut shown = Vec::new();
        // The other end is closed, which Linux reports as an error after the last byte.
        self.terminal.read_to_end(&mut shown).ok();
        String::from_utf8(shown).unwrap()
    }
}
