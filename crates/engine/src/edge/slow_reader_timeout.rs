//! The time-out for HTTP/2 visitors who do not read a response.
//!
//! HTTP/2 has a flow-control window for each stream, so one stream can stall on a busy connection. The library
//! polls a response body for the next frame when it has sent the one before. So a stream waits for its visitor
//! from the moment when the body returned a frame until the next poll. The body notes that in a thread-local,
//! and the wrapper around the library's task measures the time.
//!
//! The body is not polled in that time, so the wrapper also checks for revocation: revocation ends a stream that
//! its visitor does not read.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep, sleep_until};

use super::revocation::RevocationSignal;

/// Runs the streams of a connection. A stream whose visitor reads nothing for the time-out is dropped, which
/// resets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamExecutor {
    limit: Duration,
}

/// The library's task of one stream, with its time-out.
struct StreamTask<F> {
    task: Pin<Box<F>>,
    limit: Duration,
    /// Since when the stream waits for its visitor.
    since: Option<Instant>,
    /// The visit's revocation, once there is a response.
    cut: Option<Arc<RevocationSignal>>,
    /// Created when the stream waits for the first time.
    alarm: Option<Pin<Box<Sleep>>>,
}

/// The result of the response body's last poll in a poll of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastBodyPoll {
    Nothing,
    /// A frame, or the end.
    Gave,
    /// Pending: the stream waits for the service.
    Wait,
}

thread_local! {
    /// Of the stream that this thread polls: no other task runs during one poll.
    static LAST_BODY_POLL: Cell<LastBodyPoll> = const { Cell::new(LastBodyPoll::Nothing) };
    static REVOCATION: RefCell<Option<Arc<RevocationSignal>>> = const { RefCell::new(None) };
}

/// Notes the result of a response body's poll.
pub(super) fn note<T>(polled: &Poll<T>) {
    LAST_BODY_POLL.set(match polled {
        Poll::Ready(_) => LastBodyPoll::Gave,
        Poll::Pending => LastBodyPoll::Wait,
    });
}

/// Sets the signal that ends the stream which this thread polls. Called when its response begins.
pub(super) fn ends_with(cut: Option<Arc<RevocationSignal>>) {
    REVOCATION.set(cut);
}

impl StreamExecutor {
    /// Streams whose visitors read nothing for `limit` are reset.
    pub(super) fn new(limit: Duration) -> Self {
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
            since: None,
            cut: None,
            alarm: None,
        });
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        LAST_BODY_POLL.set(LastBodyPoll::Nothing);
        // Of an answer to somebody who is not carried by such a task.
        REVOCATION.set(None);
        if self.task.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if let Some(cut) = REVOCATION.take() {
            self.cut = Some(cut);
        }
        if let Some(cut) = &self.cut
            && cut.poll_stream(cx).is_ready()
        {
            return Poll::Ready(());
        }
        match LAST_BODY_POLL.get() {
            LastBodyPoll::Nothing => {}
            LastBodyPoll::Gave => self.since = Some(Instant::now()),
            LastBodyPoll::Wait => self.since = None,
        }
        let Some(since) = self.since else {
            return Poll::Pending;
        };
        let deadline = since + self.limit;
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        loop {
            // An alarm of an earlier wait rings early, and is set anew only then.
            ready!(alarm.as_mut().poll(cx));
            if deadline <= Instant::now() {
                return Poll::Ready(());
            }
            alarm.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const LIMIT: Duration = Duration::from_mins(1);

    async fn watched(task: impl Future<Output = ()>) -> Duration {
        let begun = Instant::now();
        let watched = StreamTask {
            task: Box::pin(task),
            limit: LIMIT,
            since: None,
            cut: None,
            alarm: None,
        };
        watched.await;
        begun.elapsed()
    }

    /// Does this once, and then waits to be dropped.
    async fn last_did(polled: Poll<()>) {
        let mut done = false;
        poll_fn(|_| {
            if !std::mem::replace(&mut done, true) {
                note(&polled);
            }
            Poll::<()>::Pending
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_has_the_limit() {
        assert_eq!(watched(last_did(Poll::Ready(()))).await, LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn each_piece_that_is_taken_begins_it_anew() {
        let task = async {
            for _ in 0..5 {
                note(&Poll::Ready(()));
                tokio::time::sleep(LIMIT / 2).await;
            }
            last_did(Poll::Ready(())).await;
        };
        assert_eq!(watched(task).await, LIMIT / 2 * 5 + LIMIT);
    }

    /// A visitor that takes nothing has its stream until it is revoked, and no longer.
    #[tokio::test(start_paused = true)]
    async fn a_cut_ends_a_stream_that_waits_for_its_visitor() {
        for gives in [Poll::Ready(()), Poll::Pending] {
            let cut = Arc::new(RevocationSignal::default());
            let cutting = Arc::clone(&cut);
            tokio::spawn(async move {
                tokio::time::sleep(LIMIT / 10).await;
                cutting.now();
            });
            let mut said = Some(cut);
            let task = poll_fn(move |_| {
                if let Some(cut) = said.take() {
                    ends_with(Some(cut));
                    note(&gives);
                }
                Poll::<()>::Pending
            });
            assert_eq!(watched(task).await, LIMIT / 10);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_may_take_its_time() {
        let task = async {
            note(&Poll::Ready(()));
            tokio::time::sleep(LIMIT / 2).await;
            note(&Poll::<()>::Pending);
            tokio::time::sleep(LIMIT * 100).await;
        };
        assert_eq!(watched(task).await, LIMIT / 2 + LIMIT * 100);
    }
}
