//! Counts the requests in flight on a multiplexed connection.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use transport::permit::{Counter, Permit};

/// The requests in flight of one connection. Pings do not count: a connection that only exchanges
/// pings is idle.
#[derive(Debug, Default)]
pub(crate) struct InFlightRequests {
    open: Counter,
    started: AtomicUsize,
}

/// Counts a request as in flight until it is dropped.
pub(crate) type InFlightGuard = Permit<InFlightRequests>;

impl InFlightRequests {
    /// Counts a request until the returned guard is dropped.
    pub(crate) fn track(activity: &Arc<Self>) -> InFlightGuard {
        activity.started.fetch_add(1, Ordering::Relaxed);
        InFlightGuard::take(activity)
    }

    /// Waits until the connection has been idle for a whole `period`. The check runs once per
    /// period, so that requests need no timers. The call returns one to two periods after the last
    /// request.
    pub(in crate::edge) async fn idle_for(&self, period: Duration) {
        loop {
            let before = self.started.load(Ordering::Relaxed);
            let quiet = self.open.count() == 0;
            sleep(period).await;
            if quiet && self.started.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    /// Returns after `period` if no request has started by then. Otherwise it never returns.
    pub(in crate::edge) async fn no_request_within(&self, period: Duration) {
        sleep(period).await;
        if self.started.load(Ordering::Relaxed) > 0 {
            pending::<()>().await;
        }
    }
}

impl AsRef<Counter> for InFlightRequests {
    fn as_ref(&self) -> &Counter {
        &self.open
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(90);

    #[tokio::test(start_paused = true)]
    async fn connection_without_requests_is_idle_after_one_period() {
        let begun = Instant::now();
        InFlightRequests::default().idle_for(PERIOD).await;
        assert_eq!(begun.elapsed(), PERIOD);
    }

    #[tokio::test(start_paused = true)]
    async fn connection_is_active_until_one_period_after_the_last_request() {
        let activity = Arc::new(InFlightRequests::default());
        let begun = Instant::now();
        let long = InFlightRequests::track(&activity);
        let requests = async {
            sleep(PERIOD * 5).await;
            drop(long);
            sleep(PERIOD / 2).await;
            drop(InFlightRequests::track(&activity));
            begun.elapsed()
        };
        let (last, ()) = tokio::join!(requests, activity.idle_for(PERIOD));
        let quiet = begun.elapsed().saturating_sub(last);
        assert!(quiet >= PERIOD && quiet < PERIOD * 2, "{quiet:?}");
    }
}
