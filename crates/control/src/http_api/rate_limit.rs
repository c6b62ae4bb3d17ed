//! Rate limits of credentials and of users.
//!
//! [`limit_callers`] is a layer over all operations of the API. Those that are not public need an
//! authenticated caller. Each of their requests takes a token out of two buckets: that of its
//! credential and that of its user. A bucket holds the tokens of one minute. Buckets are per
//! process, so several platforms allow several times as much. Requests without a valid credential
//! count for their source ([`source`]).

mod layer;
mod section;
mod source;
mod source_layer;

use std::sync::Arc;

use daemon::clock::Clock;
use daemon::rate_limit::{Buckets, RateLimit};
use types::id::UserId;

pub(crate) use self::layer::limit_callers;
pub use self::section::{LimitsConfig, LimitsSection};
use self::source::SourceLimiter;
pub(crate) use self::source::mark_authenticated;
pub(crate) use self::source_layer::limit_sources;
use crate::caller::Principal;
use crate::http_api::problem::HandlerResult;

/// The buckets of one process; a part of [`crate::app::App`].
#[derive(Debug)]
pub struct RateLimiter {
    credentials: Buckets<String>,
    users: Buckets<UserId>,
    sources: SourceLimiter,
    clock: Arc<dyn Clock>,
}

impl RateLimiter {
    pub(crate) fn new(limits: &LimitsConfig, clock: Arc<dyn Clock>) -> Self {
        Self {
            credentials: Buckets::new(limits.credential_requests_per_minute),
            users: Buckets::new(limits.user_requests_per_minute),
            sources: SourceLimiter::new(limits.source_requests_per_minute),
            clock,
        }
    }

    /// Takes a token of this caller.
    ///
    /// # Errors
    /// One of the buckets is empty.
    fn take(&self, who: &Principal) -> Result<RateLimit, RateLimit> {
        let now = self.clock.instant();
        let credential = self.credentials.take(who.source.id().to_owned(), now);
        // If the credential's bucket is empty, the request must not count for its user.
        let user = match credential {
            Ok(_) => self.users.take(who.user.id, now),
            Err(_) => Ok(self.users.peek(&who.user.id, now)),
        };
        let is_refused = credential.is_err() || user.is_err();
        let rate_limit = RateLimit(vec![
            ("credential", credential.unwrap_or_else(|empty| empty)),
            ("user", user.unwrap_or_else(|empty| empty)),
        ]);
        if is_refused {
            Err(rate_limit)
        } else {
            Ok(rate_limit)
        }
    }

    /// Takes a token of a caller that another interface has authenticated.
    pub(crate) fn admit(&self, who: &Principal) -> HandlerResult<()> {
        self.take(who)
            .map(|_| ())
            .map_err(|limit| limit.refusal().into())
    }
}
