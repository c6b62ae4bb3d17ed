//! Counts the requests in flight on a multiplexed connection.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// The requests in flight of one connection. Pings do not count: a connection with pings alone is idle.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    open: AtomicUsize,
    begun: AtomicUsize,
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct InFlightGuard(Arc<InFlight>);

impl InFlight {
    /// Counts a request until the returned guard is dropped.
    pub(crate) fn begin(activity: &Arc<Self>) -> InFlightGuard {
        activity.begun.fetch_add(1, Ordering::Relaxed);
        activity.open.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(Arc::clone(activity))
    }

    /// Waits until the connection was idle for a whole `period`. It checks once per period, so that a request
    /// costs no timer, and returns after one to two periods.
    pub(super) async fn idle_for(&self, period: Duration) {
        loop {
            let before = self.begun.load(Ordering::Relaxed);
            let quiet = self.open.load(Ordering::Relaxed) == 0;
            sleep(period).await;
            if quiet && self.begun.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    /// Ready after `period` if no request has begun; otherwise pending without end.
    pub(super) async fn never_begins(&self, period: Duration) {
        sleep(period).await;
        if self.begun.load(Ordering::Relaxed) > 0 {
            pending::<()>().await;
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(90);

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_ceases() {
        let begun = Instant::now();
        InFlight::default().idle_for(PERIOD).await;
        assert_eq!(begun.elapsed(), PERIOD);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_keeps_it_until_its_end_and_a_period_more() {
        let activity = Arc::new(InFlight::default());
        let begun = Instant::now();
        let long = InFlight::begin(&activity);
        let requests = async {
            sleep(PERIOD * 5).await;
            drop(long);
            sleep(PERIOD / 2).await;
            drop(InFlight::begin(&activity));
            begun.elapsed()
        };
        let (last, ()) = tokio::join!(requests, activity.idle_for(PERIOD));
        let quiet = begun.elapsed().saturating_sub(last);
        assert!(quiet >= PERIOD && quiet < PERIOD * 2, "{quiet:?}");
    }
}
