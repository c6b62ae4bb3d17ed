//! What the system tells this program while a session runs, on systems with signals and on others.

use std::io;

/// Signals that end a program, by their numbers.
pub(super) struct EndSignals {
    #[cfg(unix)]
    all: [(u8, tokio::signal::unix::Signal); 4],
}

impl EndSignals {
    /// From now on they end nothing by themselves.
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

    /// The next one. Cancel safe.
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

    /// Ctrl-C is all that there is.
    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "as where it can fail")]
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// The next one. Cancel safe.
    #[cfg(not(unix))]
    pub(super) async fn next(&mut self) -> u8 {
        match tokio::signal::ctrl_c().await {
            Ok(()) => 2,
            Err(_none) => std::future::pending().await,
        }
    }
}

/// New sizes of the terminal.
pub(super) struct ResizeEvents {
    #[cfg(unix)]
    signal: tokio::signal::unix::Signal,
}

impl ResizeEvents {
    /// From now on.
    #[cfg(unix)]
    pub(super) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            signal: signal(SignalKind::window_change())?,
        })
    }

    /// The terminal has another size. Cancel safe.
    #[cfg(unix)]
    pub(super) async fn next(&mut self) {
        if self.signal.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Nobody tells, so it is looked at in between.
    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "as where it can fail")]
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// It may have another size.
    #[cfg(not(unix))]
    pub(super) async fn next(&mut self) {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}
