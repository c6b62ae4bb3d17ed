//! Time limit for HTTP/2 visitors that do not read a response.
//!
//! HTTP/2 has a flow-control window for each stream, so one stream can stall on a busy connection.
//! The task of a stream polls a response body for the next frame after it sent the previous one. So
//! a stream waits for its visitor from the time when the body returned a frame until the next poll.
//! The body records its polls in a thread-local, and the wrapper around the task measures the time.
//! No type can connect the two at the Engine API: hyper builds the task of a stream itself, before
//! there is a response, and passes it to the executor as an opaque future. The streams of visitors
//! use the same wrapper.
//!
//! The body is not polled during that time, so the wrapper also checks for revocation. Revocation
//! therefore also ends a stream that its visitor does not read.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::edge::revocation::RevocationSignal;

/// Runs the streams of a connection. A stream whose visitor reads nothing until the time limit is
/// dropped, which resets it.
#[derive(Clone, Copy, Debug)]
pub(in crate::edge) struct StreamExecutor {
    limit: Duration,
}

/// The task of one stream, with its time limit.
struct StreamTask<F> {
    task: Pin<Box<F>>,
    limit: Duration,
    /// Start of the current wait for the visitor.
    waiting_since: Option<Instant>,
    /// Revocation signal of the visit, once there is a response.
    signal: Option<Arc<RevocationSignal>>,
    /// Timer, created when the stream first waits.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Result of the last poll of the response body within one poll of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastBodyPoll {
    NotPolled,
    /// The body returned a frame or its end.
    Ready,
    /// The body is pending, so the stream waits for the service.
    Pending,
}

thread_local! {
    /// State of the stream that this thread polls. No other task runs during one poll.
    static LAST_BODY_POLL: Cell<LastBodyPoll> = const { Cell::new(LastBodyPoll::NotPolled) };
    static REVOCATION: RefCell<Option<Arc<RevocationSignal>>> = const { RefCell::new(None) };
}

/// Records the result of polling a response body.
pub(in crate::edge) fn record_body_poll<T>(polled: &Poll<T>) {
    LAST_BODY_POLL.set(match polled {
        Poll::Ready(_) => LastBodyPoll::Ready,
        Poll::Pending => LastBodyPoll::Pending,
    });
}

/// Sets the revocation signal of the stream that this thread polls. It is called when the response
/// starts.
pub(in crate::edge) fn set_revocation_signal(signal: Option<Arc<RevocationSignal>>) {
    REVOCATION.set(signal);
}

impl StreamExecutor {
    /// Streams whose visitors read nothing for `limit` are reset.
    pub(in crate::edge) fn new(limit: Duration) -> Self {
        Self { limit }
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        tokio::spawn(StreamTask {
            task: Box::pin(task),
            limit: self.limit,
            waiting_since: None,
            signal: None,
            timer: None,
        });
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        LAST_BODY_POLL.set(LastBodyPoll::NotPolled);
        // Removes a signal that was set outside of a stream task.
        REVOCATION.set(None);
        if self.task.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if let Some(signal) = REVOCATION.take() {
            self.signal = Some(signal);
        }
        if let Some(signal) = &self.signal
            && signal.poll_stream(cx).is_ready()
        {
            return Poll::Ready(());
        }
        match LAST_BODY_POLL.get() {
            LastBodyPoll::NotPolled => {}
            LastBodyPoll::Ready => self.waiting_since = Some(Instant::now()),
            LastBodyPoll::Pending => self.waiting_since = None,
        }
        let Some(since) = self.waiting_since else {
            return Poll::Pending;
        };
        let deadline = since + self.limit;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        loop {
            // The timer may still have the deadline of an earlier wait. It is reset when it fires.
            ready!(timer.as_mut().poll(cx));
            if deadline <= Instant::now() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const LIMIT: Duration = Duration::from_mins(1);

    async fn task_lifetime(task: impl Future<Output = ()>) -> Duration {
        let started = Instant::now();
        let stream = StreamTask {
            task: Box::pin(task),
            limit: LIMIT,
            waiting_since: None,
            signal: None,
            timer: None,
        };
        stream.await;
        started.elapsed()
    }

    /// Records one body poll, then stays pending until it is dropped.
    async fn body_poll_then_pending(polled: Poll<()>) {
        let mut done = false;
        poll_fn(|_| {
            if !std::mem::replace(&mut done, true) {
                record_body_poll(&polled);
            }
            Poll::<()>::Pending
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_streams_end_at_the_limit() {
        assert_eq!(
            task_lifetime(body_poll_then_pending(Poll::Ready(()))).await,
            LIMIT
        );
    }

    #[tokio::test(start_paused = true)]
    async fn each_frame_restarts_the_limit() {
        let task = async {
            for _ in 0..5 {
                record_body_poll(&Poll::Ready(()));
                tokio::time::sleep(LIMIT / 2).await;
            }
            body_poll_then_pending(Poll::Ready(())).await;
        };
        assert_eq!(task_lifetime(task).await, LIMIT / 2 * 5 + LIMIT);
    }

    /// A stalled stream ends on revocation, before the time limit.
    #[tokio::test(start_paused = true)]
    async fn revocation_ends_a_stalled_stream() {
        for body_poll in [Poll::Ready(()), Poll::Pending] {
            let signal = Arc::new(RevocationSignal::default());
            let revoking = Arc::clone(&signal);
            tokio::spawn(async move {
                tokio::time::sleep(LIMIT / 10).await;
                revoking.revoke();
            });
            let mut unsent = Some(signal);
            let task = poll_fn(move |_| {
                if let Some(signal) = unsent.take() {
                    set_revocation_signal(Some(signal));
                    record_body_poll(&body_poll);
                }
                Poll::<()>::Pending
            });
            assert_eq!(task_lifetime(task).await, LIMIT / 10);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_service_does_not_count() {
        let task = async {
            record_body_poll(&Poll::Ready(()));
            tokio::time::sleep(LIMIT / 2).await;
            record_body_poll(&Poll::<()>::Pending);
            tokio::time::sleep(LIMIT * 100).await;
        };
        assert_eq!(task_lifetime(task).await, LIMIT / 2 + LIMIT * 100);
    }
}
