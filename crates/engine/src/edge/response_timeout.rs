//! Time limit of the response head.

use std::future::poll_fn;
use std::num::{NonZeroU32, NonZeroU64};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::config::EngineConfig;
use crate::live::LiveTunnel;

/// Progress of a request that is being sent to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Number of bytes or frames that were sent.
    pub(super) count: u64,
    /// True while the edge waits for the visitor, which must send at [`ResponseTimeout::rate`].
    pub(super) waits_for_visitor: bool,
}

/// Limits of the time before a response head.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseTimeout {
    /// Time limit since the start of the request, or since its last progress. A large body may
    /// take longer to upload than a service may take to respond.
    pub(super) period: Duration,
    /// Minimum average rate of the visitor in bytes per second, after the first period. Without it,
    /// a visitor that sends single bytes occupies a service without limit.
    pub(super) rate: Option<NonZeroU32>,
}

impl ResponseTimeout {
    /// The limits for a tunnel. It may have its own period, which was checked when it was opened.
    pub(super) fn for_tunnel<A>(tunnel: &LiveTunnel<A>, config: &EngineConfig) -> Self {
        let requested = tunnel.view.properties.time_to_first_byte_seconds;
        let requested = requested.map(|seconds| Duration::from_secs(seconds.into()));
        Self {
            period: requested.unwrap_or(config.timeouts.stream_request),
            rate: config.limits.min_body_rate,
        }
    }

    /// Limit of the total wait for a visitor that has sent `count` bytes.
    fn total_wait(self, count: u64) -> Option<Duration> {
        let earned = count / NonZeroU64::from(self.rate?);
        self.period.checked_add(Duration::from_secs(earned))
    }
}

/// Total time that the edge has waited for a visitor.
#[derive(Debug, Default)]
struct WaitTime {
    before: Duration,
    since: Option<Instant>,
}

impl WaitTime {
    fn update(&mut self, is_timed: bool) {
        match self.since {
            None if is_timed => self.since = Some(Instant::now()),
            Some(since) if !is_timed => {
                self.before += since.elapsed();
                self.since = None;
            }
            _ => {}
        }
    }

    /// Time at which the total reaches `allowed`, if the visitor sends nothing.
    fn deadline_for(&self, allowed: Duration) -> Option<Instant> {
        self.since?.checked_add(allowed.saturating_sub(self.before))
    }
}

/// Waits for the response to a request that started at `started`. Returns `None` on a time-out.
///
/// `answer` is polled for the response, and reports the request's progress at each poll.
pub(super) async fn await_with_timeout<T>(
    started: Instant,
    timeout: ResponseTimeout,
    mut answer: impl FnMut(&mut Context<'_>) -> (Poll<T>, Progress),
) -> Option<T> {
    let sleep = sleep_until(started + timeout.period);
    tokio::pin!(sleep);
    let mut last_count = None;
    let mut last = started;
    let mut waited = WaitTime::default();
    poll_fn(|cx| {
        let (answer, progress) = answer(cx);
        if let Poll::Ready(answer) = answer {
            return Poll::Ready(Some(answer));
        }
        // The first poll sends the head and available bytes. Only later bytes count as progress.
        if last_count
            .replace(progress.count)
            .is_some_and(|before| before != progress.count)
        {
            last = Instant::now();
        }
        waited.update(progress.waits_for_visitor);
        loop {
            ready!(sleep.as_mut().poll(cx));
            let max_wait = timeout.total_wait(progress.count);
            let rate_deadline = max_wait.and_then(|allowed| waited.deadline_for(allowed));
            let progress_deadline = last + timeout.period;
            let deadline =
                rate_deadline.map_or(progress_deadline, |slow| slow.min(progress_deadline));
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
    const TIMEOUT: ResponseTimeout = ResponseTimeout {
        period: PERIOD,
        rate: NonZeroU32::new(100),
    };

    fn sent(moved: u64) -> Progress {
        Progress {
            count: moved,
            waits_for_visitor: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_requests_time_out_after_one_period() {
        let started = Instant::now();
        let waited = await_with_timeout(started, TIMEOUT, |_| (Poll::<()>::Pending, sent(7))).await;
        assert_eq!(waited, None);
        assert_eq!(started.elapsed(), PERIOD);
    }

    /// Returns the time until the time-out of a request that sends `bytes` bytes every 20 s, first
    /// immediately, `count` times.
    async fn moving(bytes: u64, count: u64) -> Duration {
        let started = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_secs(20));
        let mut ticked = 0;
        let waited = await_with_timeout(started, TIMEOUT, |cx| {
            while ticked < count && ticks.poll_tick(cx).is_ready() {
                ticked += 1;
            }
            let progress = Progress {
                count: ticked * bytes,
                waits_for_visitor: ticked < count,
            };
            (Poll::<()>::Pending, progress)
        });
        assert_eq!(waited.await, None);
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn progress_restarts_the_period() {
        // The first piece is sent immediately, the fifth after 80 s.
        assert_eq!(moving(10_000, 5).await, Duration::from_secs(80) + PERIOD);
    }

    #[tokio::test(start_paused = true)]
    async fn uploads_below_the_minimum_rate_time_out() {
        assert_eq!(moving(1, u64::MAX).await, PERIOD);
        // The four pieces sent within 60 s allow 40 s beyond the first period.
        assert_eq!(moving(1000, u64::MAX).await, Duration::from_secs(70));
    }

    /// The visitor is not responsible for a slow service.
    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_service_does_not_count() {
        let started = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_secs(20));
        let mut ticked = 0;
        let waited = await_with_timeout(started, TIMEOUT, |cx| {
            while ticks.poll_tick(cx).is_ready() {
                ticked += 1;
            }
            // For two minutes only the service delays the request.
            let progress = Progress {
                count: ticked,
                waits_for_visitor: ticked > 6,
            };
            (Poll::<()>::Pending, progress)
        });
        assert_eq!(waited.await, None);
        assert_eq!(started.elapsed(), Duration::from_mins(2) + PERIOD);
    }

    /// After a complete request, the service gets the whole period.
    #[tokio::test(start_paused = true)]
    async fn the_rate_does_not_apply_after_the_body() {
        assert_eq!(moving(1, 2).await, Duration::from_secs(20) + PERIOD);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_ends_the_wait() {
        let waited =
            await_with_timeout(Instant::now(), TIMEOUT, |_| (Poll::Ready(1), sent(0))).await;
        assert_eq!(waited, Some(1));
    }
}
