//! Requests per second of a tunnel and of its project.

use std::time::Duration;

use types::problem::Problem;

use super::bucket::{Bucket, Nanos, Rate};
use super::meters::Meters;
use crate::clock::Clock;
use crate::directory::Project;

/// A limit that a visitor has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of the plan is exceeded: `{limit}` is {per_second}")]
pub(crate) struct RateExceeded {
    limit: &'static str,
    per_second: u64,
    wait: Duration,
}

/// Capacity of a full bucket: the requests of one second.
const REQUEST_BURST: Duration = Duration::from_secs(1);

/// Counts a request or a connection of a visitor that was admitted to a tunnel. Refused visitors
/// cost nothing and are not counted.
///
/// # Errors
/// The exceeded limit. Nothing is counted in this case.
pub(crate) fn count_request(
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
        let detail = format!("This tunnel received too many requests: {exceeded}.");
        Self::new(429, "rate_limited", "")
            .with_detail(detail)
            .with_retry_after(u32::try_from(seconds.max(1)).unwrap_or(u32::MAX))
    }
}
