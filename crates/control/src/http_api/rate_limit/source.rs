//! Rate limits for requests without a valid credential, per source.
//!
//! [`super::limit_sources`] is a layer over all routes. Each request first takes a token of its
//! source. The token is returned if the request has a valid credential, because then the request
//! counts for the credential and its user instead. If the bucket is empty, only requests with a
//! credential that was valid recently are handled, so that one client cannot lock
//! out the other clients at its address.

use std::cell::Cell;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use daemon::rate_limit::{Buckets, RecentKeys};
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};

/// The buckets of all sources.
#[derive(Debug)]
pub(super) struct SourceLimiter {
    pub(super) buckets: Buckets<IpAddr>,
    /// Hashes of credentials that were valid. After a collision, a request only skips the wait. It
    /// is still authenticated.
    pub(super) valid: RecentKeys<u64>,
    hasher: RandomState,
}

tokio::task_local! {
    /// True once a credential of the request in this task was valid.
    pub(super) static HAS_CREDENTIAL: Cell<bool>;
}

/// Records that the request in this task has a valid credential. The verification of credentials
/// calls this, so that no interface can forget it.
pub(crate) fn mark_authenticated() {
    // Outside of a request there is nothing to record.
    HAS_CREDENTIAL.try_with(|flag| flag.set(true)).ok();
}

impl SourceLimiter {
    pub(super) fn new(per_minute: NonZeroU32) -> Self {
        Self {
            buckets: Buckets::new(per_minute),
            valid: RecentKeys::new(VALID_FOR),
            hasher: RandomState::new(),
        }
    }

    /// Hash of the credentials of a request; `None` if it has none.
    pub(super) fn credential(&self, headers: &HeaderMap) -> Option<u64> {
        let mut hasher = self.hasher.build_hasher();
        let mut count = 0;
        for name in [AUTHORIZATION, COOKIE] {
            for value in headers.get_all(&name) {
                (name.as_str(), value.as_bytes()).hash(&mut hasher);
                count += 1;
            }
        }
        (count > 0).then(|| hasher.finish())
    }
}

/// Longer than the pauses of a browser in use, or of a program that polls.
const VALID_FOR: Duration = Duration::from_hours(1);
