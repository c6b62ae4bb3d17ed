//! Rate limits of requests: token buckets by key ([`Buckets`]), and their response headers
//! ([`RateLimit`]). The service decides the key of a caller and the number of buckets.

mod bucket;

use http::{HeaderMap, HeaderName, HeaderValue};
use types::problem::Problem;

pub use self::bucket::{Buckets, Quota, RecentKeys};

/// The buckets that a request was counted in, by name, with their state after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit(pub Vec<(&'static str, Quota)>);

impl RateLimit {
    /// The problem response for a request if one of the buckets is empty.
    pub fn refusal(&self) -> Problem {
        let wait = self.0.iter().map(|(_, quota)| quota.wait_seconds).max();
        Problem::too_many_requests().with_retry_after(wait.unwrap_or_default().max(1))
    }

    /// `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        let policies = self
            .0
            .iter()
            .map(|(name, quota)| format!("\"{name}\";q={};w=60", quota.size));
        let state = self.0.iter().map(|(name, quota)| {
            format!(
                "\"{name}\";r={};t={}",
                quota.remaining, quota.full_after_seconds
            )
        });
        let fields = [
            (POLICY, policies.collect::<Vec<_>>()),
            (STATE, state.collect()),
        ];
        for (name, values) in fields {
            if let Ok(value) = HeaderValue::try_from(values.join(", ")) {
                headers.insert(name, value);
            }
        }
    }
}

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");
