//! `/api/sse`: the live stream as server-sent events (EN-3).
//!
//! One `data:` line and an empty line for each event. Comment lines keep the connection alive, and
//! the last one states the reason of the end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use daemon::problem::Refusal;
use futures_util::stream;
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Uri};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::Api;
use super::answers::TimedAnswer;
use super::caller::Watcher;
use super::watch::{Watch, WatchEnd};
use crate::live::{LoadMetric, SSE_PREFIX, SSE_SUFFIX, SubscriptionEnd};

/// The route. Pages of any origin may read it: a browser's `EventSource` needs that, and no ambient
/// credential is used here.
pub(super) fn route<A: LoadMetric>() -> MethodRouter<Arc<Api<A>>> {
    get(watch::<A>).layer(axum::middleware::map_response(
        async |mut response: Response| {
            response
                .headers_mut()
                .insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
            response
        },
    ))
}

async fn watch<A: LoadMetric>(
    watcher: Watcher,
    State(api): State<Arc<Api<A>>>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let mut watch = Watch::open(&api, watcher, &uri, (SSE_PREFIX, SSE_SUFFIX))?;
    let initial = watch.take_initial();
    let initial = initial.map(|answer| answer.with_deadline(&api.upgraded));
    let mut response = Response::new(Body::from_stream(lines(initial, watch)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

/// The body: `state.initial` in pieces, then line by line.
fn lines(
    initial: Option<TimedAnswer>,
    watch: Watch,
) -> impl stream::Stream<Item = Result<Bytes, Infallible>> + Send {
    let mut keep_alive = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let open = Lines {
        initial,
        watch,
        keep_alive,
    };
    stream::unfold(Some(open), async |lines| {
        let mut lines = lines?;
        Some(match lines.next().await {
            Ok(bytes) => (Ok(bytes), Some(lines)),
            Err(end) => (Ok(Bytes::from(format!(": closed: {end}\n\n"))), None),
        })
    })
}

#[derive(Debug)]
struct Lines {
    initial: Option<TimedAnswer>,
    watch: Watch,
    keep_alive: Interval,
}

impl Lines {
    async fn next(&mut self) -> Result<Bytes, WatchEnd> {
        if let Some(initial) = &mut self.initial {
            if let Some(end) = self.watch.credential_end() {
                return Err(end);
            }
            match initial.next() {
                Some(Ok(piece)) => return Ok(piece),
                Some(Err(_)) => return Err(SubscriptionEnd::TooSlow.into()),
                None => self.initial = None,
            }
        }
        tokio::select! {
            biased;
            frame = self.watch.next() => frame.map(|frame| frame.sse()),
            _ = self.keep_alive.tick() => Ok(Bytes::from_static(b": keep-alive\n\n")),
        }
    }
}

/// Below the idle limits of common proxies, which start at 30 s.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Tells nginx and the proxies that copied it to forward each event immediately.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

#[cfg(test)]
mod tests;
