//! Requests without a valid credential, by the source that they come from.
//!
//! A layer over everything that the platform serves ([`limit`]). Each request takes a token of its
//! source before anything else is done for it, and returns it if a credential turned out to be valid:
//! such a request counts for its credential and its person instead. With an empty bucket, only
//! requests whose credential was valid a while ago go on, so that a client that floods does not lock
//! out others behind its address.

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
    /// Credentials that were valid, by their hash: a collision spares a request the wait, and nothing
    /// else.
    valid: Recent<u64>,
    hasher: RandomState,
}

tokio::task_local! {
    /// Whether a credential of the request in this task turned out to be valid.
    static HAS_CREDENTIAL: Cell<bool>;
}

/// Notes that the request in this task has a valid credential: called where a credential is verified,
/// so that no surface can forget it.
pub(crate) fn note_credential() {
    // Outside of a request there is nothing to note.
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

/// Answers with 429 what comes from a source without a valid credential too often.
pub(crate) async fn limit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let is_known = request.extensions().get::<Principal>().is_some();
    if is_known || is_exempt(request.uri().path()) {
        return next.run(request).await;
    }
    let limiter = &app.rate_limiter.sources;
    let (parts, body) = request.into_parts();
    // A surface in this process that does not say where its caller is, is a source of its own.
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
        // It was valid, and is no longer.
        (false, Err(empty)) => form.refuse(empty),
    }
}

/// Health is asked for by balancers, and costs one look at the database in a second. Engines have
/// secrets that never wait, and wrong ones wait longer than here ([`crate::engines`]).
fn is_exempt(path: &str) -> bool {
    path == HEALTHZ.path || path == READYZ.path || path.starts_with("/link/")
}

/// The form in which a surface refuses.
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
        // An unknown route is refused as the API refuses it.
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

/// A browser that is used, or a program that asks now and then, stays known.
const VALID_FOR: Duration = Duration::from_hours(1);
