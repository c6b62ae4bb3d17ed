//! A running process, with its terminal or its pipes.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::{Pin, pin};
use std::process::ExitStatus;
use std::task::{Context, Poll, ready};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use crate::{Size, members};

/// A started command, and all processes that it starts.
///
/// It has one owner, which polls it. Dropping it before its exit was observed kills all processes
/// of its session.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Id of the session, its leader and the leader's group.
    leader: Option<Pid>,
    streams: Streams,
    exit: Option<Exit>,
}

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Exit code.
    Code(i32),
    /// Signal: its number, and its name without `SIG` (empty if it has none).
    Signal(i32, &'static str),
}

/// Output streams of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Its terminal, or its standard output with pipes.
    Main,
    /// Its standard error, with pipes.
    Errors,
}

pub(crate) enum Streams {
    Terminal(Box<pty_process::Pty>),
    Pipes {
        input: Option<ChildStdin>,
        output: Option<ChildStdout>,
        errors: Option<ChildStderr>,
    },
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Terminal(_) => "Terminal",
            Self::Pipes { .. } => "Pipes",
        })
    }
}

impl Process {
    pub(crate) fn new(child: Child, streams: Streams) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            child,
            // Ids that mean all processes, or this process's own group, are excluded.
            leader: leader.filter(|id| *id > 1).map(Pid::from_raw),
            streams,
            exit: None,
        }
    }

    /// Id of the process.
    pub fn id(&self) -> Option<u32> {
        self.leader.and_then(|pid| u32::try_from(pid.as_raw()).ok())
    }

    /// Reads output: as much as is available, up to the size of `buffer`; 0 is the end. The kernel
    /// returns a terminal's bytes in small pieces, so this reads until there are no more.
    ///
    /// # Errors
    /// Reading failed, which also means the end.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        from: Output,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        loop {
            let before = buffer.filled().len();
            let polled = match (&mut self.streams, from) {
                (Streams::Terminal(pty), Output::Main) => {
                    end_of_terminal(Pin::new(pty.as_mut()).poll_read(cx, &mut buffer))
                }
                (
                    Streams::Pipes {
                        output: Some(output),
                        ..
                    },
                    Output::Main,
                ) => Pin::new(output).poll_read(cx, &mut buffer),
                (
                    Streams::Pipes {
                        errors: Some(errors),
                        ..
                    },
                    Output::Errors,
                ) => Pin::new(errors).poll_read(cx, &mut buffer),
                _ => Poll::Ready(Ok(())),
            };
            let filled = buffer.filled().len();
            match polled {
                Poll::Ready(Ok(())) if filled > before && buffer.remaining() > 0 => {}
                // Bytes that were read before the end or the error are returned first; the next
                // call returns the end or the error again.
                Poll::Ready(Err(error)) if filled == 0 => return Poll::Ready(Err(error)),
                Poll::Pending if filled == 0 => return Poll::Pending,
                _ => return Poll::Ready(Ok(filled)),
            }
        }
    }

    /// Writes input. Returns the number of written bytes; with pipes, 0 after
    /// [`end_input`](Self::end_input).
    ///
    /// # Errors
    /// The process does not read any more.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.streams {
            Streams::Terminal(pty) => Pin::new(pty.as_mut()).poll_write(cx, bytes),
            Streams::Pipes {
                input: Some(input), ..
            } => Pin::new(input).poll_write(cx, bytes),
            Streams::Pipes { .. } => Poll::Ready(Ok(0)),
        }
    }

    /// Closes the input. With a terminal it does nothing, because there the end of input is a key.
    pub fn end_input(&mut self) {
        if let Streams::Pipes { input, .. } = &mut self.streams {
            *input = None;
        }
    }

    /// Waits for the end of the process. Unread output may remain.
    ///
    /// # Errors
    /// The system does not provide the exit status.
    pub fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Exit>> {
        if let Some(exit) = self.exit {
            return Poll::Ready(Ok(exit));
        }
        let waiting = pin!(self.child.wait());
        let exit = Exit::of(ready!(waiting.poll(cx))?);
        self.exit = Some(exit);
        Poll::Ready(Ok(exit))
    }

    /// True if the process has a terminal.
    pub fn has_terminal(&self) -> bool {
        matches!(self.streams, Streams::Terminal(_))
    }

    /// Changes the size of its terminal, which notifies the foreground processes.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn resize(&self, size: Size) -> io::Result<()> {
        let Streams::Terminal(pty) = &self.streams else {
            return Ok(());
        };
        pty.resize(pty_process::Size::new(size.rows, size.cols))
            .map_err(|error| io::Error::other(error.to_string()))
    }

    /// True if the terminal hides input: it reads lines without an echo, as for a password. A
    /// program that reads single keys echoes them itself, and hides nothing.
    pub fn hides_input(&self) -> bool {
        let Streams::Terminal(pty) = &self.streams else {
            return false;
        };
        tcgetattr(pty.as_ref()).is_ok_and(|modes| {
            modes.local_flags.contains(LocalFlags::ICANON)
                && !modes.local_flags.contains(LocalFlags::ECHO)
        })
    }

    /// Sends a signal to the foreground processes of its terminal, as a key would, or with pipes to
    /// its group. SIGHUP, SIGTERM, SIGKILL and SIGCONT are sent to the whole session
    /// ([`signal_all`](Self::signal_all)).
    pub fn signal(&self, signal: Signal) {
        if matches!(
            signal,
            Signal::SIGHUP | Signal::SIGTERM | Signal::SIGKILL | Signal::SIGCONT
        ) {
            self.signal_all(signal);
            return;
        }
        if let Some(group) = self.foreground().or(self.leader) {
            ignore_error(killpg(group, signal));
        }
    }

    /// Sends a signal to everything in its session, including stopped jobs.
    pub fn signal_all(&self, signal: Signal) {
        let Some(leader) = self.leader else { return };
        // A process may start others while it is being killed. The second round finds them.
        let rounds = if signal == Signal::SIGKILL { 2 } else { 1 };
        for _ in 0..rounds {
            let members = members::of(leader);
            // Not Linux, or no /proc: the known groups only.
            if members.is_empty() && self.exit.is_none() {
                ignore_error(killpg(leader, signal));
                if let Some(group) = self.foreground() {
                    ignore_error(killpg(group, signal));
                }
            }
            for member in members {
                ignore_error(kill(member, signal));
                // A stopped process does not handle the signal until it continues.
                if matches!(signal, Signal::SIGHUP | Signal::SIGTERM) {
                    ignore_error(kill(member, Signal::SIGCONT));
                }
            }
        }
    }

    /// The foreground group of its terminal, which receives the signals of keys.
    fn foreground(&self) -> Option<Pid> {
        let Streams::Terminal(pty) = &self.streams else {
            return None;
        };
        nix::unistd::tcgetpgrp(pty.as_ref())
            .ok()
            .filter(|group| group.as_raw() > 1)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.signal_all(Signal::SIGKILL);
        }
    }
}

impl Exit {
    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(number)) => Self::Signal(number, name(number)),
            (None, None) => Self::Code(0),
        }
    }
}

/// A signal's name without `SIG`; real-time signals have none.
fn name(number: i32) -> &'static str {
    Signal::try_from(number)
        .ok()
        .and_then(|signal| signal.as_str().strip_prefix("SIG"))
        .unwrap_or_default()
}

/// A process that is already gone needs no signal.
fn ignore_error(result: nix::Result<()>) {
    result.unwrap_or_default();
}

/// Linux reports `EIO` once no process has the other side of a terminal open: it is the end of the
/// output.
fn end_of_terminal(polled: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
    polled.map(|read| match read {
        Err(error) if error.raw_os_error() == Some(nix::libc::EIO) => Ok(()),
        read => read,
    })
}
