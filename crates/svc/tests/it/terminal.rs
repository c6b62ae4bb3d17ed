//! A user at a terminal.

use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    process::Stdio,
};

use nix::{
    fcntl::{OFlag, open},
    pty::{grantpt, posix_openpt, ptsname_r, unlockpt},
    sys::{
        signal::{Signal, kill},
        stat::Mode,
        termios::{LocalFlags, tcgetattr},
    },
    unistd::Pid,
};
use tokio::io::AsyncReadExt;

use super::program::{Home, SOON};

/// Both ends of a new terminal: that of the user and that of the program. Programs that other tests
/// start at the same moment do not inherit them, because they would keep the terminal open.
pub(crate) fn open_terminal() -> (OwnedFd, OwnedFd) {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname_r(&master).unwrap();
    let slave = open(name.as_str(), flags, Mode::empty()).unwrap();
    (master.into(), slave)
}

/// Sets the size of a terminal, by the end of its program.
pub(crate) fn set_terminal_size(end: &OwnedFd, columns: u16, rows: u16) {
    let resized = std::process::Command::new("stty")
        .args(["cols", &columns.to_string(), "rows", &rows.to_string()])
        .stdin(Stdio::from(end.try_clone().unwrap()))
        .status()
        .unwrap();
    assert!(resized.success());
}

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
        let (master, slave) = open_terminal();
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
