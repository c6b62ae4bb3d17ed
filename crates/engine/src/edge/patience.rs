//! How long the head of an answer is waited for.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Waits for an answer; `None` when it did not come within `period` of the moment at which the
/// request was `begun` or, where it still moves, of its last movement. A large body may take
/// longer to go up than a service may take to answer.
///
/// `answer` is polled together with a count of what of the request has moved.
pub(super) async fn patience<T>(
    begun: Instant,
    period: Duration,
    mut answer: impl FnMut(&mut Context<'_>) -> (Poll<T>, u64),
) -> Option<T> {
    let sleep = sleep_until(begun + period);
    tokio::pin!(sleep);
    let mut moved = None;
    let mut last = begun;
    poll_fn(|cx| {
        let (answer, moved_now) = answer(cx);
        if let Poll::Ready(answer) = answer {
            return Poll::Ready(Some(answer));
        }
        // What goes out at once, with the head, is where the count begins.
        if moved
            .replace(moved_now)
            .is_some_and(|before| before != moved_now)
        {
            last = Instant::now();
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            let deadline = last + period;
            if deadline <= Instant::now() {
                return Poll::Ready(None);
            }
            sleep.as_mut().reset(deadline);
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_move_has_one_period() {
        let begun = Instant::now();
        let waited = patience(begun, PERIOD, |_| (Poll::<()>::Pending, 7)).await;
        assert_eq!(waited, None);
        assert_eq!(begun.elapsed(), PERIOD);
    }

    #[tokio::test(start_paused = true)]
    async fn each_movement_begins_a_new_one() {
        let begun = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_secs(20));
        let mut moved = 0;
        let waited = patience(begun, PERIOD, |cx| {
            while moved < 5 && ticks.poll_tick(cx).is_ready() {
                moved += 1;
            }
            (Poll::<()>::Pending, moved)
        });
        assert_eq!(waited.await, None);
        // The first tick is at once, the fifth after 80 s.
        assert_eq!(begun.elapsed(), Duration::from_secs(80) + PERIOD);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_the_wait() {
        let waited = patience(Instant::now(), PERIOD, |_| (Poll::Ready(1), 0)).await;
        assert_eq!(waited, Some(1));
    }
}
