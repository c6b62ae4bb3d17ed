//! Rate limits for requests without a valid credential, per source.
//!
//! [`limit`] is a layer over all routes of the platform. Each request first takes a token of its
//! source. It returns the token if its credential is valid, and then counts for its credential and
//! its user instead. With an empty bucket, only requests with a credential that was valid a while
//! ago proceed. So a flooding client does not lock out others behind its address.

use std::cell::Cell;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use api::control::health::{HEALTHZ, READYZ};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use daemon::connections::source_network;
use daemon::rate_limit::{Buckets, Quota, RateLimit, Recent};
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};
use tokio::time::Instant;

use crate::app::App;
use crate::caller::Principal;
use crate::extract::ClientIp;
use crate::oauth;
use crate::pages::layout::PageRefusal;
use crate::problem::Refusal;

/// The buckets of all sources.
#[derive(Debug)]
pub(super) struct SourceLimiter {
    buckets: Buckets<IpAddr>,
    /// Hashes of credentials that were valid. A collision only lets a request skip the limit.
    valid: Recent<u64>,
    hasher: RandomState,
}

tokio::task_local! {
    /// True if a credential of the request in this task is valid.
    static HAS_CREDENTIAL: Cell<bool>;
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

    /// Hash of the request's credentials; `None` if it has none.
    fn credential(&self, headers: &HeaderMap) -> Option<u64> {
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

/// Responds with 429 to a source with too many requests without a valid credential.
pub(crate) async fn limit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let is_known = request.extensions().get::<Principal>().is_some();
    if is_known || is_exempt(request.uri().path()) {
        return next.run(request).await;
    }
    let limiter = &app.rate_limiter.sources;
    let (parts, body) = request.into_parts();
    // All callers of an interface in this process that does not report their addresses share one
    // source.
    let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let source = source_network(ClientIp::of(&parts, &app).map_or(unknown, |ClientIp(ip)| ip));
    let credential = limiter.credential(&parts.headers);
    let taken = limiter.buckets.take(source, Instant::now());
    let form = Form::of(&parts);
    if let Err(empty) = taken
        && !credential.is_some_and(|hash| limiter.valid.contains(&hash, Instant::now()))
    {
        return form.refuse(empty);
    }
    let run = async {
        let response = next.run(Request::from_parts(parts, body)).await;
        (response, HAS_CREDENTIAL.with(Cell::get))
    };
    let (response, has_credential) = HAS_CREDENTIAL.scope(Cell::new(false), run).await;
    match (has_credential, taken) {
        (true, taken) => {
            if let Some(hash) = credential {
                limiter.valid.put(hash, Instant::now());
            }
            if taken.is_ok() {
                limiter.buckets.give_back(source, Instant::now());
            }
            response
        }
        (false, Ok(_)) => response,
        // The credential was valid before, but is not any more.
        (false, Err(empty)) => form.refuse(empty),
    }
}

/// Balancers probe the health endpoints, which query the database at most once a second. Right
/// secrets of engines are never throttled, and wrong ones have longer waits ([`crate::engines`]).
fn is_exempt(path: &str) -> bool {
    path == HEALTHZ.path || path == READYZ.path || path.starts_with("/link/")
}

/// The response format of an interface.
enum Form {
    Problem,
    Oauth { path: String },
    Page,
}

impl Form {
    fn of(parts: &http::request::Parts) -> Self {
        let path = parts.uri.path();
        if oauth::is_endpoint(path) {
            let path = path.to_owned();
            return Self::Oauth { path };
        }
        // An unknown route has the response format of the API.
        let is_route = parts.extensions.get::<MatchedPath>().is_some();
        let is_document = ["/api/", "/.well-known/", "/keyrings/"]
            .iter()
            .any(|root| path.starts_with(root));
        if is_route && !is_document {
            Self::Page
        } else {
            Self::Problem
        }
    }

    fn refuse(&self, empty: Quota) -> Response {
        let wait = empty.wait_seconds.max(1);
        let rate_limit = RateLimit(vec![("source", empty)]);
        let problem = rate_limit.refusal();
        let mut response = match self {
            Self::Problem => Refusal::from(problem).into_response(),
            Self::Oauth { path } => oauth::too_many_requests(path, wait),
            Self::Page => PageRefusal::from(problem).into_response(),
        };
        rate_limit.write(response.headers_mut());
        response
    }
}

/// A browser in use, or a program with occasional requests, stays in the cache.
const VALID_FOR: Duration = Duration::from_hours(1);
