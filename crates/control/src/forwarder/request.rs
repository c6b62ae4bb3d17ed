//! A request of a page, and its counterpart to the engine.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Uri};
use tokio::time::timeout;
use types::problem::Problem;
use types::query_credential::{COMPAT_NAMES, extract};

use super::access::LiveAccess;
use super::operation::ForwardedOperation;
use super::response::forward;
use super::token::authorization;
use crate::app::App;
use crate::http_api::extract::Path;
use crate::http_api::origin;
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::people::session::{self, SignedIn};
use crate::projects::{EngineAddress, address_of};

/// Any method of `/engine/{project_id}/{*path}`
pub(super) async fn handle(
    State(app): State<Arc<App>>,
    Path((project, _)): Path<(String, String)>,
    request: Request,
) -> HandlerResult<Response> {
    let (parts, body) = request.into_parts();
    let who = caller(&app, &parts.headers).await?;
    let path = engine_path(&parts.uri, &project)?;
    let operation = ForwardedOperation::find(&parts.method, path)?;
    let query = checked_query(&parts.uri)?;
    let permit = app.forwarder.acquire(who.session.id)?;
    let access = LiveAccess {
        // Subscribed before the check, so that no later change is missed.
        changes: app.store.wakes(),
        session: who.session.id,
        who: who.principal(),
        project,
        permission: operation.permission,
        app: Arc::clone(&app),
    };
    let engine = address_of(&app, &access.check().await?)?;
    let body = read(body).await?;
    let client = app.forwarder.clients.of_cluster(&engine.cluster_domain);
    let address = format!("{}{path}{query}", origin_of(&engine));
    let mut sent = client
        .request(parts.method.clone(), address)
        .header(AUTHORIZATION, authorization(&access, operation)?);
    for name in [ACCEPT, CONTENT_TYPE] {
        if let Some(value) = parts.headers.get(&name) {
            sent = sent.header(name, value);
        }
    }
    if !body.is_empty() {
        sent = sent.body(body);
    }
    let answered = client.send(sent).await;
    let answered = answered.map_err(|error| unreachable(&engine, error))?;
    Ok(forward(answered, access, operation, permit))
}

/// The user, by the session cookie of a page of this platform. Programs use the engine itself.
async fn caller(app: &App, headers: &HeaderMap) -> HandlerResult<SignedIn> {
    if headers.contains_key(AUTHORIZATION) {
        let detail =
            "Only the platform's pages may use this address. Send the token to the engine.";
        return Err(Problem::invalid_request(detail).into());
    }
    if !origin::is_same_origin(headers, &app.config.base_url) {
        return Err(origin::refusal().into());
    }
    let visitor = session::from_cookie(app, headers).await?;
    let who = visitor.signed_in().ok_or_else(Problem::unauthenticated)?;
    app.rate_limiter.admit(&who.principal())?;
    Ok(who)
}

async fn read(body: Body) -> HandlerResult<Bytes> {
    match timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(Problem::content_too_large().into()),
        Err(_) => Err(Problem::invalid_request("The body did not arrive in time.").into()),
    }
}

/// The path at the engine, unchanged. The project's id is a plain word, so it is the same text in
/// the address and decoded.
fn engine_path<'a>(uri: &'a Uri, project: &str) -> HandlerResult<&'a str> {
    let rest = uri.path().strip_prefix("/engine/");
    let rest = rest.and_then(|rest| rest.strip_prefix(project));
    Ok(rest.ok_or_else(Problem::not_found)?)
}

/// The query with its question mark, unchanged; empty if there is none.
fn checked_query(uri: &Uri) -> HandlerResult<String> {
    let Some(query) = uri.query() else {
        return Ok(String::new());
    };
    // The engine would use this credential instead of the user's.
    if !matches!(extract(query, COMPAT_NAMES), Ok(None)) {
        return Err(Problem::malformed_query_credential().into());
    }
    Ok(format!("?{query}"))
}

fn origin_of(engine: &EngineAddress) -> String {
    let EngineAddress {
        endpoint,
        cluster_domain,
        port,
    } = engine;
    format!("https://{endpoint}.{cluster_domain}:{port}")
}

/// 502 `engine_unreachable`.
fn unreachable(engine: &EngineAddress, error: reqwest::Error) -> Refusal {
    // The query contains names that users typed, so that it is not logged.
    let error = error.without_url();
    tracing::warn!(
        endpoint = %engine.endpoint, cluster = %engine.cluster_domain,
        error = &error as &dyn std::error::Error,
        "an engine was not reached for a page"
    );
    let detail = "The engine of this project cannot be reached. Try again in a moment.";
    Problem::new(502, "engine_unreachable", detail)
        .with_retry_after(RETRY_AFTER_SECONDS)
        .into()
}

/// The bodies of this API are small objects.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// Time limit for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// An engine restarts within seconds.
const RETRY_AFTER_SECONDS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_at_the_engine_is_unchanged() {
        let path = |text: &str| {
            let uri: Uri = text.parse().unwrap();
            engine_path(&uri, "prj_1").map(str::to_owned).ok()
        };
        assert_eq!(
            path("/engine/prj_1/api/tunnels?a=b").as_deref(),
            Some("/api/tunnels")
        );
        assert_eq!(path("/engine/prj_1/api/%74").as_deref(), Some("/api/%74"));
        // The same id after decoding, but another text.
        assert_eq!(path("/engine/%70rj_1/api/tunnels"), None);
    }

    #[test]
    fn a_credential_in_the_query_is_refused() {
        let query = |text: &str| {
            let uri: Uri = text.parse().unwrap();
            checked_query(&uri).ok()
        };
        assert_eq!(query("/a").as_deref(), Some(""));
        assert_eq!(query("/a?params=%7B%7D").as_deref(), Some("?params=%7B%7D"));
        for bad in [
            "/a?svc.token=a.b.c",
            "/a?x=1&svc%2Etoken=x",
            "/a?rstream.token=",
        ] {
            assert_eq!(query(bad), None, "{bad}");
        }
    }
}
