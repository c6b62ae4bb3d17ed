//! Limits of a project's plan for its tunnels: requests per second, which are refused above the
//! limit, and bytes per second, which are throttled. In addition there are limits for every
//! project: concurrent visits, and messages of its agents.
//!
//! Usage is kept for each tunnel and for the project, in lock-free token buckets ([`bucket`]). The
//! rates belong to the project and are read each time, so that a change by the platform applies
//! immediately. A community engine has no rates and does nothing here.

mod bucket;
mod concurrency;
mod messages;
mod order;
mod sources;
mod throttled_stream;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::link::Limits;
use types::problem::Problem;

use self::bucket::{Bucket, Nanos, Rate};
pub(crate) use self::concurrency::{ConcurrencyError, ConcurrencyLimit, VisitPermit};
pub(crate) use self::messages::{ChangeRate, MessageRate, monotonic};
pub(crate) use self::order::ArrivalOrder;
pub(crate) use self::sources::{SourceVisit, SourceVisits, VisitCount};
pub(crate) use self::throttled_stream::ThrottledStream;
use crate::clock::Clock;
use crate::directory::Project;

/// Recent usage of a tunnel or of a project.
#[derive(Debug, Default)]
pub struct Meters {
    requests: Bucket,
    /// Bytes towards services.
    up: Bucket,
    /// Bytes from services.
    down: Bucket,
}

/// Bytes per second in each direction, shared by all reads and writes.
#[derive(Debug)]
pub struct Speed {
    project: AtomicU64,
    tunnel: AtomicU64,
}

/// A limit that a visitor has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than the plan allows: `{limit}` is {per_second}")]
pub(crate) struct RateExceeded {
    limit: &'static str,
    per_second: u64,
    wait: Duration,
}

/// Capacity of a full bucket: the requests of one second.
const REQUEST_BURST: Duration = Duration::from_secs(1);

/// No limit.
const NONE: u64 = u64::MAX;

impl Speed {
    pub(crate) fn new(limits: &Limits) -> Self {
        let speed = Self {
            project: AtomicU64::new(NONE),
            tunnel: AtomicU64::new(NONE),
        };
        speed.set(limits);
        speed
    }

    pub(crate) fn set(&self, limits: &Limits) {
        let set = |speed: &AtomicU64, limit: Option<u64>| {
            speed.store(limit.unwrap_or(NONE), Ordering::Relaxed);
        };
        set(&self.project, limits.bytes_per_second);
        set(&self.tunnel, limits.tunnel_bytes_per_second);
    }

    /// The limits of a tunnel and of the whole project.
    fn get(&self) -> [Option<u64>; 2] {
        [&self.tunnel, &self.project].map(|speed| {
            let speed = speed.load(Ordering::Relaxed);
            (speed != NONE).then_some(speed)
        })
    }
}

/// Counts a request or a connection of a visitor that was admitted to a tunnel. Refused visitors
/// cost nothing and are not counted.
///
/// # Errors
/// The limit that does not allow it now. Nothing is counted then.
pub(crate) fn count(
    project: &Project,
    tunnel: &Meters,
    clock: &dyn Clock,
) -> Result<(), RateExceeded> {
    let limits = project.state().limits;
    if limits.requests_per_second.is_none() && limits.tunnel_requests_per_second.is_none() {
        return Ok(());
    }
    let now = Nanos::try_from(clock.now().as_nanosecond()).unwrap_or_default();
    let rate = |limit: u32| Rate::new(limit.into(), REQUEST_BURST);
    let own = limits.tunnel_requests_per_second.map(rate);
    let take = |bucket: &Bucket, rate: Option<Rate>, limit| {
        let Some(rate) = rate else { return Ok(()) };
        bucket.take(rate, now).map_err(|wait| RateExceeded {
            limit,
            per_second: rate.per_second(),
            wait,
        })
    };
    take(&tunnel.requests, own, "tunnel_requests_per_second")?;
    let all = limits.requests_per_second.map(rate);
    take(&project.meters.requests, all, "requests_per_second").inspect_err(|_| {
        if let Some(own) = own {
            tunnel.requests.refund_one(own);
        }
    })
}

impl From<RateExceeded> for Problem {
    fn from(exceeded: RateExceeded) -> Self {
        let seconds = exceeded.wait.as_secs() + u64::from(exceeded.wait.subsec_nanos() > 0);
        let detail = format!("This tunnel is visited too often: {exceeded}.");
        Self::new(429, "rate_limited", "")
            .with_detail(detail)
            .with_retry_after(u32::try_from(seconds.max(1)).unwrap_or(u32::MAX))
    }
}
