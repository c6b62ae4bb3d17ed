//! The time-out for a response's head.

use std::future::poll_fn;
use std::num::{NonZeroU32, NonZeroU64};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::config::EngineConfig;

/// How much of a request has been sent to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Bytes that have been sent, or another count that grows with them.
    pub(super) moved: u64,
    /// The edge waits for the visitor, who has to send at [`ResponseTimeout::rate`].
    pub(super) is_timed: bool,
}

/// The limits on the time before a response's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseTimeout {
    /// From the request's beginning, or from the last time that a part of it was sent: a large body may take
    /// longer to upload than a service may take to respond.
    pub(super) period: Duration,
    /// Bytes per second that a visitor has to send on average, after the first period. Without a minimum, a
    /// visitor that sends a byte now and then occupies a service without end.
    pub(super) rate: Option<NonZeroU32>,
}

impl ResponseTimeout {
    pub(super) fn of(config: &EngineConfig) -> Self {
        Self {
            period: config.timeouts.stream_request,
            rate: config.limits.min_body_rate,
        }
    }

    /// The total time that the edge waits for a visitor who has sent `moved` bytes.
    fn allows(self, moved: u64) -> Option<Duration> {
        let earned = moved / NonZeroU64::from(self.rate?);
        self.period.checked_add(Duration::from_secs(earned))
    }
}

/// The time that the edge has waited for a visitor.
#[derive(Debug, Default)]
struct WaitTime {
    before: Duration,
    since: Option<Instant>,
}

impl WaitTime {
    fn note(&mut self, is_timed: bool) {
        match self.since {
            None if is_timed => self.since = Some(Instant::now()),
            Some(since) if !is_timed => {
                self.before += since.elapsed();
                self.since = None;
            }
            _ => {}
        }
    }

    /// When the total reaches `allowed`, if the visitor sends nothing.
    fn reaches(&self, allowed: Duration) -> Option<Instant> {
        self.since?.checked_add(allowed.saturating_sub(self.before))
    }
}

/// Waits for the response to a request that began at `begun`; `None` when it does not arrive in time.
///
/// `answer` reports the request's progress at each poll.
pub(super) async fn await_with_timeout<T>(
    begun: Instant,
    patience: ResponseTimeout,
    mut answer: impl FnMut(&mut Context<'_>) -> (Poll<T>, Progress),
) -> Option<T> {
    let sleep = sleep_until(begun + patience.period);
    tokio::pin!(sleep);
    let mut moved = None;
    let mut last = begun;
    let mut waited = WaitTime::default();
    poll_fn(|cx| {
        let (answer, progress) = answer(cx);
        if let Poll::Ready(answer) = answer {
            return Poll::Ready(Some(answer));
        }
        // What goes out at once, with the head, is where the count begins.
        if moved
            .replace(progress.moved)
            .is_some_and(|before| before != progress.moved)
        {
            last = Instant::now();
        }
        waited.note(progress.is_timed);
        loop {
            ready!(sleep.as_mut().poll(cx));
            let slow = patience.allows(progress.moved);
            let slow = slow.and_then(|allowed| waited.reaches(allowed));
            let still = last + patience.period;
            let deadline = slow.map_or(still, |slow| slow.min(still));
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
    const PATIENCE: ResponseTimeout = ResponseTimeout {
        period: PERIOD,
        rate: NonZeroU32::new(100),
    };

    fn still(moved: u64) -> Progress {
        Progress {
            moved,
            is_timed: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_move_has_one_period() {
        let begun = Instant::now();
        let waited = await_with_timeout(begun, PATIENCE, |_| (Poll::<()>::Pending, still(7))).await;
        assert_eq!(waited, None);
        assert_eq!(begun.elapsed(), PERIOD);
    }

    /// How long is waited for the answer to a request of which so many bytes move every 20 s, the
    /// first at once, `count` times; then it has ended.
    async fn moving(bytes: u64, count: u64) -> Duration {
        let begun = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_secs(20));
        let mut ticked = 0;
        let waited = await_with_timeout(begun, PATIENCE, |cx| {
            while ticked < count && ticks.poll_tick(cx).is_ready() {
                ticked += 1;
            }
            let progress = Progress {
                moved: ticked * bytes,
                is_timed: ticked < count,
            };
            (Poll::<()>::Pending, progress)
        });
        assert_eq!(waited.await, None);
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn each_movement_begins_a_new_one() {
        // The first movement is at once, the fifth after 80 s.
        assert_eq!(moving(10_000, 5).await, Duration::from_secs(80) + PERIOD);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trickle_is_over_when_it_has_used_up_what_it_earned() {
        assert_eq!(moving(1, u64::MAX).await, PERIOD);
        // The four pieces that were there after 60 s are worth 40 s beyond the first period.
        assert_eq!(moving(1000, u64::MAX).await, Duration::from_secs(70));
    }

    /// What a service takes slowly is not the visitor's fault.
    #[tokio::test(start_paused = true)]
    async fn the_time_in_which_the_service_is_waited_for_does_not_count() {
        let begun = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_secs(20));
        let mut ticked = 0;
        let waited = await_with_timeout(begun, PATIENCE, |cx| {
            while ticks.poll_tick(cx).is_ready() {
                ticked += 1;
            }
            // For two minutes nothing but the service holds it up.
            let progress = Progress {
                moved: ticked,
                is_timed: ticked > 6,
            };
            (Poll::<()>::Pending, progress)
        });
        assert_eq!(waited.await, None);
        assert_eq!(begun.elapsed(), Duration::from_mins(2) + PERIOD);
    }

    /// A request that is whole leaves the service its time.
    #[tokio::test(start_paused = true)]
    async fn the_rate_ends_with_the_body() {
        assert_eq!(moving(1, 2).await, Duration::from_secs(20) + PERIOD);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_the_wait() {
        let waited =
            await_with_timeout(Instant::now(), PATIENCE, |_| (Poll::Ready(1), still(0))).await;
        assert_eq!(waited, Some(1));
    }
}
