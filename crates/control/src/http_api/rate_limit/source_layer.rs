//! The layer that counts requests without a valid credential by their source.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use api::control::health::{HEALTHZ, READYZ};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use daemon::connections::source_network;
use daemon::rate_limit::{Quota, RateLimit};

use crate::app::App;
use crate::caller::Principal;
use crate::http_api::extract::ClientIp;
use crate::http_api::problem::Refusal;
use crate::http_api::rate_limit::source::HAS_CREDENTIAL;
use crate::oauth::{self, McpPage};
use crate::pages::layout::PageRefusal;

/// Responds with 429 to sources that send too many requests without a valid credential.
pub(crate) async fn limit_sources(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let is_known = request.extensions().get::<Principal>().is_some();
    let page = McpPage::of_request(&request, &app.config.oauth);
    // A preflight never has a credential. The endpoint answers that of a listed page immediately.
    let is_preflight = page.is_some() && oauth::is_preflight(&request);
    if is_known || is_preflight || is_exempt(request.uri().path()) {
        return next.run(request).await;
    }
    let limiter = &app.rate_limiter.sources;
    let (parts, body) = request.into_parts();
    // A surface in this process that does not report a client address counts as one source.
    let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let source = source_network(ClientIp::of(&parts, &app).map_or(unknown, |ClientIp(ip)| ip));
    let credential = limiter.credential(&parts.headers);
    let taken = limiter.buckets.take(source, app.clock.instant());
    let form = Form::of(&parts, page);
    if let Err(empty) = taken
        && !credential.is_some_and(|hash| limiter.valid.contains(&hash, app.clock.instant()))
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
                limiter.valid.put(hash, app.clock.instant());
            }
            if taken.is_ok() {
                limiter.buckets.refund(source, app.clock.instant());
            }
            response
        }
        (false, Ok(_)) => response,
        // The credential is no longer valid.
        (false, Err(empty)) => form.refuse(empty),
    }
}

/// Health checks of load balancers cost at most one query per second. Engines authenticate with
/// secrets, and wrong secrets are throttled more strictly than here ([`crate::engines`]).
fn is_exempt(path: &str) -> bool {
    path == HEALTHZ.path || path == READYZ.path || path.starts_with("/link/")
}

/// The form in which a surface refuses.
enum Form {
    /// For programs, and for a page that may call an MCP endpoint.
    Problem {
        page: Option<McpPage>,
    },
    Oauth {
        path: String,
    },
    Page,
}

impl Form {
    fn of(parts: &http::request::Parts, page: Option<McpPage>) -> Self {
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
            Self::Problem { page }
        }
    }

    fn refuse(self, empty: Quota) -> Response {
        let wait = empty.wait_seconds.max(1);
        let rate_limit = RateLimit(vec![("source", empty)]);
        let problem = rate_limit.refusal();
        let mut response = match self {
            Self::Problem { page } => {
                let mut response = Refusal::from(problem).into_response();
                if let Some(page) = page {
                    page.allow(&mut response);
                }
                response
            }
            Self::Oauth { path } => oauth::too_many_requests(&path, wait),
            Self::Page => PageRefusal::from(problem).into_response(),
        };
        rate_limit.write(response.headers_mut());
        response
    }
}
