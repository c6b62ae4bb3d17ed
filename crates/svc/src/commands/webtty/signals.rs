//! Signals and terminal size changes during a session, with fallbacks for systems without signals.

use std::io;

#[cfg(unix)]
use daemon::signals::{Signal, Signals};

/// Signals that end a program, by number.
pub(super) struct EndSignals {
    #[cfg(unix)]
    all: [(u8, tokio::signal::unix::Signal); 4],
}

impl EndSignals {
    /// From now on these signals no longer end the process.
    #[cfg(unix)]
    pub(super) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            all: [
                (1, signal(SignalKind::hangup())?),
                (2, signal(SignalKind::interrupt())?),
                (3, signal(SignalKind::quit())?),
                (15, signal(SignalKind::terminate())?),
            ],
        })
    }

    /// The next signal. Cancel safe.
    #[cfg(unix)]
    pub(super) async fn next(&mut self) -> u8 {
        std::future::poll_fn(|cx| {
            for (number, signal) in &mut self.all {
                if signal.poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// Only Ctrl-C is available.
    #[cfg(not(unix))]
    #[expect(
        clippy::unnecessary_wraps,
        reason = "same signature as the fallible version"
    )]
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// The next signal. Cancel safe.
    #[cfg(not(unix))]
    pub(super) async fn next(&mut self) -> u8 {
        match tokio::signal::ctrl_c().await {
            Ok(()) => 2,
            Err(_none) => std::future::pending().await,
        }
    }
}

/// Size changes of the terminal.
///
/// A program that is stopped gets no SIGWINCH, because another job is then in the foreground. It
/// may therefore find another size when it continues.
pub(super) struct ResizeEvents {
    #[cfg(unix)]
    resized: Signals,
    #[cfg(unix)]
    continued: Signals,
}

impl ResizeEvents {
    /// Starts to listen.
    #[cfg(unix)]
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            resized: Signals::new(Signal::WindowChange)?,
            continued: Signals::new(Signal::Continue)?,
        })
    }

    /// Returns when the size may have changed: true if the program continues, and another one may
    /// have used the terminal. Cancel safe.
    #[cfg(unix)]
    pub(super) async fn next(&mut self) -> bool {
        tokio::select! {
            () = self.resized.recv() => false,
            () = self.continued.recv() => true,
        }
    }

    /// Without notifications, the size is polled.
    #[cfg(not(unix))]
    #[expect(
        clippy::unnecessary_wraps,
        reason = "same signature as the fallible version"
    )]
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Returns when the size may have changed. Programs are not stopped here.
    #[cfg(not(unix))]
    pub(super) async fn next(&mut self) -> bool {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        false
    }
}
