//! Authentication of engines on the link. It is an extractor, so that no handler can forget it.

use std::sync::Arc;

use api::link::VERSION;
use axum::extract::FromRequestParts;
use daemon::connections::source_network;
use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
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
    /// Version of its program; `None` for a program that does not report it.
    pub(super) program_version: Option<String>,
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
        Ok(Self {
            cluster,
            program_version: program_version(&parts.headers),
        })
    }
}

/// The version in `svc/0.1.0`, for display.
fn program_version(headers: &HeaderMap) -> Option<String> {
    let agent = headers.get(USER_AGENT)?.to_str().ok()?;
    let version = agent.strip_prefix(PROGRAM)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+-".contains(&byte);
    let fits = (1..=MAX_VERSION_BYTES).contains(&version.len()) && version.bytes().all(is_plain);
    fits.then(|| version.to_owned())
}

const PROGRAM: &str = "svc/";

/// Versions have about ten characters.
const MAX_VERSION_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_program_reports_a_short_version() {
        let read = |agent: &'static str| {
            let value = HeaderValue::from_static(agent);
            program_version(&HeaderMap::from_iter([(USER_AGENT, value)]))
        };
        assert_eq!(read("svc/0.1.0").as_deref(), Some("0.1.0"));
        assert_eq!(read("svc/1.0.0-rc.1+b").as_deref(), Some("1.0.0-rc.1+b"));
        for other in [
            "",
            "svc/",
            "curl/8.0",
            "svc/1 2",
            "svc/<b>",
            "svc/000000000000000000000000000000000",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
        assert_eq!(program_version(&HeaderMap::new()), None);
    }
}
