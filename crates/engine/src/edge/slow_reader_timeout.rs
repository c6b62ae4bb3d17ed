//! HTTP/2 visitors that leave an answer waiting.
//!
//! What a visitor of HTTP/2 takes is decided by windows for each stream, so its connection may be
//! as lively as can be while one of its streams stands still. The library asks the body of an
//! answer for the next piece when it got rid of the one before. So a stream waits for its visitor
//! from the moment at which the body gave a piece until it is asked again: that is noted here by
//! the body, and timed around the library's task.
//!
//! Meanwhile nobody asks the body whether the visit was cut, so that is asked around the library's
//! task as well: revocation ends a stream that its visitor does not read.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep, sleep_until};

use super::revocation::RevocationSignal;

/// Runs the streams of a connection, each until its visitor has left it waiting for too long: then
/// it is dropped, which resets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamExecutor {
    limit: Duration,
}

/// One stream: the library's task, with a watch on it.
struct StreamTask<F> {
    task: Pin<Box<F>>,
    limit: Duration,
    /// Since when it waits for its visitor.
    since: Option<Instant>,
    /// What ends it before, once there is an answer.
    cut: Option<Arc<RevocationSignal>>,
    /// Made when a stream waits for the first time.
    alarm: Option<Pin<Box<Sleep>>>,
}

/// What the body of an answer did last while its stream was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastBodyPoll {
    Nothing,
    /// It gave a piece, or its end.
    Gave,
    /// It has nothing yet: the stream waits for the service.
    Wait,
}

thread_local! {
    /// Of the stream that this thread polls: a task is polled from its beginning to its end
    /// without another one between.
    static LAST_BODY_POLL: Cell<LastBodyPoll> = const { Cell::new(LastBodyPoll::Nothing) };
    static REVOCATION: RefCell<Option<Arc<RevocationSignal>>> = const { RefCell::new(None) };
}

/// Notes what a body answered to the library.
pub(super) fn note<T>(polled: &Poll<T>) {
    LAST_BODY_POLL.set(match polled {
        Poll::Ready(_) => LastBodyPoll::Gave,
        Poll::Pending => LastBodyPoll::Wait,
    });
}

/// The stream that this thread polls ends when the visit is cut. Said when its answer begins.
pub(super) fn ends_with(cut: Option<Arc<RevocationSignal>>) {
    REVOCATION.set(cut);
}

impl StreamExecutor {
    /// A visitor may take nothing of an answer for `limit`.
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
