//! Rate limits for requests without a valid credential, per source.
//!
//! A layer over everything that the platform serves ([`super::limit_sources`]). Each request takes a token of its
//! source before anything else is done for it, and returns it if a credential turned out to be valid:
//! such a request counts for its credential and its person instead. With an empty bucket, only
//! requests whose credential was valid a while ago go on, so that a client that floods does not lock
//! out others behind its address.

use std::cell::Cell;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use daemon::rate_limit::{Buckets, Recent};
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};

/// The buckets of all sources.
#[derive(Debug)]
pub(super) struct SourceLimiter {
    pub(super) buckets: Buckets<IpAddr>,
    /// Credentials that were valid, by their hash: a collision spares a request the wait, and nothing
    /// else.
    pub(super) valid: Recent<u64>,
    hasher: RandomState,
}

tokio::task_local! {
    /// True once a credential of the request in this task was valid.
    pub(super) static HAS_CREDENTIAL: Cell<bool>;
}

/// Records that the request in this task has a valid credential. The verification of credentials
/// calls this, so that no interface can forget it.
pub(crate) fn note_credential() {
    // Outside of a request there is nothing to record.
    HAS_CREDENTIAL.try_with(|flag| flag.set(true)).ok();
}

impl SourceLimiter {
    pub(super) fn new(per_minute: NonZeroU32) -> Self {
        Self {
            buckets: Buckets::new(per_minute),
            valid: Recent::new(VALID_FOR),
            hasher: RandomState::new(),
        }
    }

    /// The credentials of a request; `None` where it has none.
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

/// A browser that is used, or a program that asks now and then, stays known.
const VALID_FOR: Duration = Duration::from_hours(1);
