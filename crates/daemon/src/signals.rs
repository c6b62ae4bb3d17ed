//! Signals, and the nearest equivalent on Windows. Signals that a system does not support are never
//! delivered, so that callers need no conditional code.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

/// A signal to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM; on Windows closing the console.
    Terminate,
    /// SIGINT; on Windows Ctrl-C.
    Interrupt,
    /// SIGHUP.
    HangUp,
    /// SIGUSR2.
    User2,
    /// SIGWINCH.
    WindowChange,
    /// SIGTSTP.
    Suspend,
    /// SIGCONT.
    Continue,
}

/// A stream of one signal, from its creation on.
#[derive(Debug)]
pub struct Signals(Source);

impl Signals {
    /// Replaces the default action of a signal.
    ///
    /// # Errors
    /// The handler could not be installed.
    pub fn new(signal: Signal) -> io::Result<Self> {
        source(signal).map(Self)
    }

    /// Waits for the next one. Cancel safe.
    pub async fn recv(&mut self) {
        poll_fn(|cx| self.poll_recv(cx)).await;
    }

    /// Ready if there was a signal since the last call.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll(cx)
    }
}

#[cfg(unix)]
type Source = tokio::signal::unix::Signal;

#[cfg(unix)]
fn source(signal: Signal) -> io::Result<Source> {
    use nix::libc;
    use tokio::signal::unix::SignalKind;
    tokio::signal::unix::signal(match signal {
        Signal::Terminate => SignalKind::terminate(),
        Signal::Interrupt => SignalKind::interrupt(),
        Signal::HangUp => SignalKind::hangup(),
        Signal::User2 => SignalKind::user_defined2(),
        Signal::WindowChange => SignalKind::window_change(),
        Signal::Suspend => SignalKind::from_raw(libc::SIGTSTP),
        Signal::Continue => SignalKind::from_raw(libc::SIGCONT),
    })
}

#[cfg(windows)]
#[derive(Debug)]
enum Source {
    CtrlClose(tokio::signal::windows::CtrlClose),
    CtrlC(tokio::signal::windows::CtrlC),
    Never,
}

#[cfg(windows)]
fn source(signal: Signal) -> io::Result<Source> {
    use tokio::signal::windows::{ctrl_c, ctrl_close};
    Ok(match signal {
        Signal::Terminate => Source::CtrlClose(ctrl_close()?),
        Signal::Interrupt => Source::CtrlC(ctrl_c()?),
        Signal::HangUp
        | Signal::User2
        | Signal::WindowChange
        | Signal::Suspend
        | Signal::Continue => Source::Never,
    })
}

/// A trait, because `Source` is a foreign type on Unix.
trait SignalReceiver {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

impl SignalReceiver for Source {
    #[cfg(unix)]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_recv(cx).map(drop)
    }

    #[cfg(windows)]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::CtrlClose(close) => close.poll_recv(cx).map(drop),
            Self::CtrlC(pressed) => pressed.poll_recv(cx).map(drop),
            Self::Never => Poll::Pending,
        }
    }
}
