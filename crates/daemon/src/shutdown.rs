//! Stopping: the first signal starts a drain; the second one, or the deadline, ends the process.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::signals::{Signal, Signals};

/// The two cancellation tokens that every task listens to.
///
/// `drain` is cancelled first: admit no new work and finish the admitted work. `hard` is cancelled
/// by the second request or `deadline` after the first, whichever is earlier: abort all remaining
/// work. A restart is a drain followed by a new process (OP-1). Clones share the tokens.
#[derive(Clone, Debug)]
pub struct Shutdown {
    drain: CancellationToken,
    hard: CancellationToken,
    deadline: Duration,
}

impl Shutdown {
    /// Creates the tokens of a running process; `deadline` is the maximum duration of a drain.
    pub fn new(deadline: Duration) -> Self {
        Self {
            drain: CancellationToken::new(),
            hard: CancellationToken::new(),
            deadline,
        }
    }

    /// Maximum duration of a drain.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Cancelled when admission ends.
    pub fn drain(&self) -> &CancellationToken {
        &self.drain
    }

    /// Cancelled when remaining work must end immediately; never before [`Shutdown::drain`].
    pub fn hard(&self) -> &CancellationToken {
        &self.hard
    }

    /// Handles one signal: it starts the drain, or ends a drain that has already started.
    pub fn request(&self) {
        if self.drain.is_cancelled() {
            self.hard.cancel();
        } else {
            self.drain.cancel();
        }
    }

    /// Converts SIGTERM and SIGINT to [`Shutdown::request`] and enforces the deadline. The handlers
    /// are installed when this returns. The returned future waits for signals and ends when `hard`
    /// is cancelled. The caller spawns it and drops it after the drain.
    ///
    /// # Errors
    /// The handlers could not be installed.
    pub fn on_signals(&self) -> io::Result<impl Future<Output = ()> + Send + use<>> {
        // A supervisor sends one, a terminal the other: they have the same meaning.
        let mut terminate = Signals::new(Signal::Terminate)?;
        let mut interrupt = Signals::new(Signal::Interrupt)?;
        let next = move |cx: &mut Context<'_>| {
            let name = match (terminate.poll_recv(cx), interrupt.poll_recv(cx)) {
                (Poll::Ready(()), _) => "SIGTERM",
                (Poll::Pending, Poll::Ready(())) => "SIGINT",
                (Poll::Pending, Poll::Pending) => return Poll::Pending,
            };
            tracing::info!(signal = name, "shutdown requested");
            Poll::Ready(())
        };
        Ok(self.clone().drive(next))
    }

    /// Requests a stop each time `next` is ready, and enforces the deadline, until `hard`.
    async fn drive(self, mut next: impl FnMut(&mut Context<'_>) -> Poll<()>) {
        let deadline = async {
            self.drain.cancelled().await;
            tokio::time::sleep(self.deadline).await;
        };
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                () = self.hard.cancelled() => return,
                () = poll_fn(&mut next) => self.request(),
                () = &mut deadline => {
                    tracing::warn!(seconds = self.deadline.as_secs(), "the drain took too long");
                    self.hard.cancel();
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    /// A running `drive` whose signals the test sends.
    fn driven() -> (Shutdown, mpsc::Sender<()>, JoinHandle<()>) {
        let shutdown = Shutdown::new(DEADLINE);
        let (signal, mut signals) = mpsc::channel(1);
        let task = tokio::spawn(
            shutdown
                .clone()
                .drive(move |cx| signals.poll_recv(cx).map(Option::unwrap)),
        );
        (shutdown, signal, task)
    }

    #[tokio::test(start_paused = true)]
    async fn first_signal_drains_and_second_ends() {
        let (shutdown, signal, task) = driven();
        signal.send(()).await.unwrap();
        shutdown.drain().cancelled().await;
        assert!(!shutdown.hard().is_cancelled());
        signal.send(()).await.unwrap();
        shutdown.hard().cancelled().await;
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_at_its_deadline() {
        let (shutdown, signal, task) = driven();
        signal.send(()).await.unwrap();
        shutdown.drain().cancelled().await;
        let began = tokio::time::Instant::now();
        shutdown.hard().cancelled().await;
        assert_eq!(began.elapsed(), DEADLINE);
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_internal_stop_also_has_the_deadline() {
        let (shutdown, _signal, task) = driven();
        shutdown.request();
        shutdown.hard().cancelled().await;
        task.await.unwrap();
    }
}
