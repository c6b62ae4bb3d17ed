//! Request rates of the Engine API: of a credential, of a project with all of its credentials, and
//! of a source that sends invalid tokens.
//!
//! A request is counted when its caller is identified ([`super::caller`]), so operations need not
//! count. [`layer`] writes the remaining capacity of the buckets into the response. Each engine has
//! its own buckets.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use credentials::VerifiedToken;
use daemon::problem::Refusal;
use daemon::rate_limit::{Buckets, RateLimit};
use http::request::Parts;
use types::root::Root;

use crate::clock::Clock;
use crate::config::{ApiRates, Limits};
use crate::directory::Project;

/// The buckets of all workers.
#[derive(Debug)]
pub struct RateLimiter {
    credentials: Buckets<Root>,
    projects: Buckets<Arc<str>>,
    /// Tokens that had to be verified and were not valid.
    sources: Buckets<Option<IpAddr>>,
    clock: Arc<dyn Clock>,
}

/// The source of a connection: an extension of each request. IPv6 hosts count as their networks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceAddress(pub(crate) IpAddr);

/// Passes the limit from the caller's extractor to the response.
#[derive(Clone, Debug, Default)]
struct Slot(Arc<OnceLock<RateLimit>>);

impl RateLimiter {
    pub(crate) fn new(limits: &Limits, clock: Arc<dyn Clock>) -> Self {
        Self::with(limits.api_rates, clock)
    }

    /// A limiter with these rates.
    pub fn with(rates: ApiRates, clock: Arc<dyn Clock>) -> Self {
        Self {
            credentials: Buckets::new(rates.per_credential),
            projects: Buckets::new(rates.per_project),
            sources: Buckets::new(rates.per_source),
            clock,
        }
    }

    /// Counts a request of a caller. A caller that is not a member of the project (`is_member`)
    /// does not use up the rate of the members.
    ///
    /// # Errors
    /// One of the buckets is empty.
    pub(super) fn take(
        &self,
        parts: &Parts,
        token: &VerifiedToken,
        project: &Project,
        is_member: bool,
    ) -> Result<(), Refusal> {
        let now = self.clock.instant();
        let credential = self.credentials.take(token.root.clone(), now);
        let mut is_refused = credential.is_err();
        let mut quotas = vec![("credential", credential.unwrap_or_else(|empty| empty))];
        if is_member {
            // A request that the credential's rate refuses is not counted for its project.
            let of_project = if is_refused {
                Ok(self.projects.peek(&project.id, now))
            } else {
                self.projects.take(Arc::clone(&project.id), now)
            };
            is_refused |= of_project.is_err();
            quotas.push(("project", of_project.unwrap_or_else(|empty| empty)));
        }
        let rate_limit = RateLimit(quotas);
        let refusal = is_refused.then(|| rate_limit.refusal());
        if let Some(slot) = parts.extensions.get::<Slot>() {
            slot.0.set(rate_limit).ok();
        }
        refusal.map_or(Ok(()), |problem| Err(problem.into()))
    }

    /// Verifies a token that is not cached, if the source may send one more invalid token.
    ///
    /// # Errors
    /// The rate of the source is exceeded.
    pub(super) fn verify<T, E>(
        &self,
        parts: &Parts,
        verify: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<T, E>, Refusal> {
        let source = parts
            .extensions
            .get::<SourceAddress>()
            .map(|source| source.0);
        let now = self.clock.instant();
        // Taken before and refunded after, so that concurrent requests cannot exceed the rate.
        self.sources
            .take(source, now)
            .map_err(|empty| RateLimit(vec![("source", empty)]).refusal())?;
        let verdict = verify();
        if verdict.is_ok() {
            self.sources.refund(source, now);
        }
        Ok(verdict)
    }
}

/// Writes `RateLimit` and `RateLimit-Policy` into the response to a counted caller.
pub(super) async fn layer(mut request: Request, next: Next) -> Response {
    let slot = Slot::default();
    request.extensions_mut().insert(slot.clone());
    let mut response = next.run(request).await;
    if let Some(rate_limit) = slot.0.get() {
        rate_limit.write(response.headers_mut());
    }
    response
}
