//! Authentication of engines on the link. It is an extractor, so that no handler can forget it.

use std::sync::Arc;

use api::link::VERSION;
use axum::extract::FromRequestParts;
use daemon::connections::source_network;
use http::HeaderName;
use http::request::Parts;
use types::problem::Problem;

use super::cluster::Cluster;
use crate::app::App;
use crate::caller::Bearer;
use crate::http_api::extract::ClientIp;
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::people::throttle::TooManyAttemptsError;
use crate::runtime::metrics;

/// Version of the message formats, in both directions.
pub(super) const LINK_VERSION: HeaderName = HeaderName::from_static("svc-link-version");

/// An authenticated engine of a cluster.
pub(super) struct Engine {
    pub(super) cluster: Arc<Cluster>,
}

impl FromRequestParts<Arc<App>> for Engine {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> HandlerResult<Self> {
        let ClientIp(ip) = ClientIp::from_request_parts(parts, app).await?;
        let cluster = match Bearer::of(&parts.headers) {
            Bearer::Token(secret) => app.engines.cluster(secret),
            Bearer::Absent | Bearer::Malformed => None,
        };
        let Some(cluster) = cluster else {
            metrics::link_refused();
            // Right secrets are never throttled, so that a stranger at the same address cannot
            // block an engine.
            return Err(
                match app
                    .engines
                    .failures
                    .record_attempt(&source_network(ip), app.now())
                {
                    Ok(()) => Problem::unauthenticated().into(),
                    Err(TooManyAttemptsError(seconds)) => Problem::too_many_requests()
                        .with_retry_after(seconds)
                        .into(),
                },
            );
        };
        let mut versions = parts.headers.get_all(LINK_VERSION).iter();
        if versions.next().is_none_or(|version| version != VERSION) || versions.next().is_some() {
            let detail = format!("{LINK_VERSION} must be {VERSION}");
            let problem = Problem::invalid_request(detail);
            return Err(problem.with_field(LINK_VERSION.as_str()).into());
        }
        Ok(Self { cluster })
    }
}
