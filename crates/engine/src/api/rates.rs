//! Rates of the Engine API: how many requests a credential may send, a project with all of its
//! credentials, and a source whose tokens are not valid.
//!
//! A request is counted where its caller is identified, which no operation does by itself
//! ([`super::caller`]). [`layer`] writes what the buckets have left into the response. Buckets are
//! those of one engine.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use credentials::Verified;
use daemon::problem::Refusal;
use daemon::rate_limit::{Buckets, RateLimit};
use http::request::Parts;
use tokio::time::Instant;
use types::root::Root;

use crate::config::Limits;
use crate::directory::Project;

/// The buckets of all workers.
#[derive(Debug)]
pub struct RateLimiter {
    credentials: Buckets<Root>,
    projects: Buckets<Arc<str>>,
    /// Of tokens that had to be verified and were not valid.
    sources: Buckets<Option<IpAddr>>,
}

/// The source of a connection: an extension of each request. IPv6 hosts are their networks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source(pub(crate) IpAddr);

/// Where the extractor of a caller leaves what the response is to say.
#[derive(Clone, Debug, Default)]
struct Slot(Arc<OnceLock<RateLimit>>);

/// Requests in a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiRates {
    /// Of one credential, with all tokens that come from it.
    pub of_credential: NonZeroU32,
    /// Of one project.
    pub of_project: NonZeroU32,
    /// Of one source, with tokens that are not valid.
    pub of_source: NonZeroU32,
}

impl RateLimiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self::with(limits.api_rates)
    }

    /// With these rates.
    pub fn with(rates: ApiRates) -> Self {
        Self {
            credentials: Buckets::new(rates.of_credential),
            projects: Buckets::new(rates.of_project),
            sources: Buckets::new(rates.of_source),
        }
    }

    /// Counts a request of a caller. One who is not of the project (`is_member`) takes nothing from
    /// those who are.
    ///
    /// # Errors
    /// One of the buckets is empty.
    pub(super) fn take(
        &self,
        parts: &Parts,
        token: &Verified,
        project: &Project,
        is_member: bool,
    ) -> Result<(), Refusal> {
        let now = Instant::now();
        let credential = self.credentials.take(token.root.clone(), now);
        let mut is_refused = credential.is_err();
        let mut quotas = vec![("credential", credential.unwrap_or_else(|empty| empty))];
        if is_member {
            // What the credential may not send is not sent for its project, either.
            let of_project = if is_refused {
                Ok(self.projects.look(&project.id, now))
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

    /// Verifies a token that is not remembered, if the source may have one more that is not valid.
    ///
    /// # Errors
    /// It may not.
    pub(super) fn verify<T, E>(
        &self,
        parts: &Parts,
        verify: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<T, E>, Refusal> {
        let source = parts.extensions.get::<Source>().map(|source| source.0);
        let now = Instant::now();
        // Taken before, and given back: of many at once none is one too many.
        self.sources
            .take(source, now)
            .map_err(|empty| RateLimit(vec![("source", empty)]).refusal())?;
        let verdict = verify();
        if verdict.is_ok() {
            self.sources.give_back(source, now);
        }
        Ok(verdict)
    }
}

/// Writes `RateLimit` and `RateLimit-Policy` into the response to a caller who was counted.
pub(super) async fn layer(mut request: Request, next: Next) -> Response {
    let slot = Slot::default();
    request.extensions_mut().insert(slot.clone());
    let mut response = next.run(request).await;
    if let Some(rate_limit) = slot.0.get() {
        rate_limit.write(response.headers_mut());
    }
    response
}
