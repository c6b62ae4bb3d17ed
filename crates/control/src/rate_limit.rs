//! Rate limits of credentials and of users.
//!
//! [`limit`] is a layer over all operations of the document. Operations that are not public need an
//! authenticated caller. Each of their requests takes a token out of two buckets: that of its
//! credential and that of its user. A bucket holds the tokens of one minute. Buckets are per
//! process, so several platforms allow several times as much. Requests without a valid credential
//! count for their source ([`source`]).

mod section;
mod source;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use api::control::{Access, Method, operations};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use daemon::rate_limit::{Buckets, RateLimit};
use tokio::time::Instant;
use types::id::UserId;

pub use self::section::{LimitsConfig, LimitsSection};
use self::source::SourceLimiter;
pub(crate) use self::source::{limit as limit_source, note_credential};
use crate::app::App;
use crate::caller::{self, Principal};
use crate::problem::{Answer, Refusal};

/// The buckets of one process; a part of [`App`].
#[derive(Debug)]
pub struct RateLimiter {
    credentials: Buckets<String>,
    users: Buckets<UserId>,
    sources: SourceLimiter,
}

impl RateLimiter {
    pub(crate) fn new(limits: &LimitsConfig) -> Self {
        Self {
            credentials: Buckets::new(limits.credential_requests_per_minute),
            users: Buckets::new(limits.user_requests_per_minute),
            sources: SourceLimiter::new(limits.source_requests_per_minute),
        }
    }

    /// Takes a token of this caller.
    ///
    /// # Errors
    /// One of the buckets is empty.
    fn take(&self, who: &Principal) -> Result<RateLimit, RateLimit> {
        let now = Instant::now();
        let credential = self.credentials.take(who.source.id().to_owned(), now);
        // If the credential's bucket is empty, the request must not count for its user.
        let user = match credential {
            Ok(_) => self.users.take(who.user.id, now),
            Err(_) => Ok(self.users.look(&who.user.id, now)),
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
    pub(crate) fn admit(&self, who: &Principal) -> Answer<()> {
        self.take(who)
            .map(|_| ())
            .map_err(|limit| limit.refusal().into())
    }
}

/// Authenticates the caller of an operation that is not public, once for the handler as well, and
/// takes one of the caller's tokens.
pub(crate) async fn limit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if !is_guarded(&request) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    // An unauthenticated request gets the handler's refusal.
    let who = match caller::identify(&parts, &app).await {
        Ok(who) => who,
        Err(refusal) => return refusal.into_response(),
    };
    let (rate_limit, mut response) = match app.rate_limiter.take(&who) {
        Ok(rate_limit) => {
            parts.extensions.insert(who);
            let request = Request::from_parts(parts, body);
            (rate_limit, next.run(request).await)
        }
        Err(rate_limit) => {
            let refusal = Refusal::from(rate_limit.refusal());
            (rate_limit, refusal.into_response())
        }
    };
    rate_limit.write(response.headers_mut());
    response
}

/// True if the operation of the request requires a caller.
fn is_guarded(request: &Request) -> bool {
    static GUARDED: LazyLock<HashMap<(&str, &str), bool>> = LazyLock::new(|| {
        operations()
            .map(|operation| {
                let method = match operation.method {
                    Method::Get => "GET",
                    Method::Head => "HEAD",
                    Method::Post => "POST",
                    Method::Put => "PUT",
                    Method::Patch => "PATCH",
                    Method::Delete => "DELETE",
                };
                let is_guarded = operation.access != Access::Public;
                ((method, operation.path), is_guarded)
            })
            .collect()
    });
    let Some(path) = request.extensions().get::<MatchedPath>() else {
        return false;
    };
    let known = |method| GUARDED.get(&(method, path.as_str())).copied();
    let method = request.method().as_str();
    // A HEAD without its own operation is handled like the GET.
    let found = known(method).or_else(|| known("GET").filter(|_| method == "HEAD"));
    found.unwrap_or(false)
}
