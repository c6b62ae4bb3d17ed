//! Activity of one connection: requests in progress, and responses that its client does not read.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::Version;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// Requests of one connection. HTTP/2 PING replies do not count as requests.
#[derive(Debug, Default)]
pub(super) struct Activity {
    state: Mutex<State>,
    /// Cancelled by the first request.
    has_request: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    /// Number of all requests so far.
    request_count: u64,
    open: usize,
    /// Time of the first byte after the last request of HTTP/1.1, until the next request is
    /// complete. HTTP/2 has bytes between requests that belong to none.
    head_started: Option<Instant>,
    is_http1: bool,
    /// Responses with bytes that the connection does not accept, with their start time. The size is
    /// limited by the number of streams of the connection.
    unread: HashMap<u64, Instant>,
}

/// One request in progress, from its head to the end of its response.
#[derive(Debug)]
pub(super) struct RequestGuard {
    activity: Arc<Activity>,
    number: u64,
}

impl Activity {
    pub(super) fn start_request(self: &Arc<Self>, version: Version) -> RequestGuard {
        let mut state = self.state.lock();
        state.is_http1 = version < Version::HTTP_2;
        state.head_started = None;
        state.request_count += 1;
        state.open += 1;
        let number = state.request_count;
        drop(state);
        if number == 1 {
            self.has_request.cancel();
        }
        RequestGuard {
            activity: Arc::clone(self),
            number,
        }
    }

    /// Bytes of the client have arrived.
    pub(super) fn record_read(&self) {
        let mut state = self.state.lock();
        if state.is_http1 && state.open == 0 && state.head_started.is_none() {
            state.head_started = Some(Instant::now());
        }
    }

    /// Completes when a head of HTTP/1.1, except the first one, is incomplete for a whole `period`,
    /// which takes one to two periods.
    pub(super) async fn wait_for_slow_head(&self, period: Duration) {
        loop {
            let started = self.state.lock().head_started;
            let now = Instant::now();
            let due = started.unwrap_or(now) + period;
            if due <= now {
                return;
            }
            sleep_until(due).await;
        }
    }

    /// Completes after `period` if no request has started until then. Never completes if one has.
    pub(super) async fn wait_without_request(&self, period: Duration) {
        sleep(period).await;
        if self.state.lock().request_count > 0 {
            std::future::pending::<()>().await;
        }
    }

    /// Completes with the first request, immediately if it has started already.
    pub(super) async fn wait_for_first_request(&self) {
        self.has_request.cancelled().await;
    }

    /// Completes when no request was in progress for a whole `period`, which takes one to two
    /// periods.
    pub(super) async fn wait_until_idle(&self, period: Duration) {
        loop {
            let before = {
                let state = self.state.lock();
                (state.open == 0).then_some(state.request_count)
            };
            sleep(period).await;
            if before.is_some_and(|before| self.state.lock().request_count == before) {
                return;
            }
        }
    }

    /// Completes when a response was not read for a whole `period`.
    pub(super) async fn wait_until_stalled(&self, period: Duration) {
        loop {
            let oldest = self.state.lock().unread.values().min().copied();
            let now = Instant::now();
            let due = oldest.unwrap_or(now) + period;
            if due <= now {
                return;
            }
            sleep_until(due).await;
        }
    }
}

impl RequestGuard {
    fn set_unread(&self) {
        let mut state = self.activity.state.lock();
        state.unread.insert(self.number, Instant::now());
    }

    fn set_read(&self) {
        self.activity.state.lock().unread.remove(&self.number);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.set_read();
        let mut state = self.activity.state.lock();
        state.open = state.open.saturating_sub(1);
    }
}

/// The body of a response. It counts as unread from its creation, because the head is unsent, and
/// after each frame until the connection polls the next one. A body without a frame waits for the
/// platform and not for the client.
pub(super) struct WatchedBody {
    body: Body,
    request: RequestGuard,
}

impl WatchedBody {
    pub(super) fn new(body: Body, request: RequestGuard) -> Self {
        request.set_unread();
        Self { body, request }
    }
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match polled {
            Poll::Ready(Some(Ok(_))) => self.request.set_unread(),
            Poll::Ready(_) | Poll::Pending => self.request.set_read(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
