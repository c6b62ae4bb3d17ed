//! The endpoint on the platform: Streamable HTTP (MC-1), one request, one answer, no session.
//!
//! The door comes first: a bearer that is there has to be good (MC-7), cookies are never looked at
//! (MC-5), and a foreign `Origin` or `Host` is refused. Behind it the SDK speaks the protocol, and
//! calls go to the API's own router in this process, as the caller that was identified.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, COOKIE};
use http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::ServiceExt as _;
use types::problem::{MEDIA_TYPE, Problem};

use crate::server::{Backend, Carried, Server};

/// What the endpoint stands on.
pub struct Hosted<I> {
    /// Where people and programs reach the platform, without a slash at the end.
    pub base_url: String,
    /// The API.
    pub api: Router,
    /// Who knows callers by their credentials.
    pub identify: I,
}

/// Who knows callers by their credentials.
pub trait Identify: Send + Sync + 'static {
    /// Looks at the `Authorization` of a request, and at nothing else of it.
    fn identify(&self, headers: HeaderMap) -> Identified;
}

/// The caller, as extensions by which the API knows it; `None` where no credential was sent; the
/// answer to a bad one.
pub type Identified = Pin<Box<dyn Future<Output = Result<Option<Extensions>, Response>> + Send>>;

/// Where the endpoint is (MC-1).
pub const PATH: &str = "/api/mcp";

/// The endpoint at [`PATH`].
pub fn hosted<I: Identify>(hosted: Hosted<I>) -> Router {
    let server = Server::new(InProcess { api: hosted.api }, &hosted.base_url);
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_REQUEST_BYTES)
        .with_allowed_hosts(hosts(&hosted.base_url))
        .with_allowed_origins([origin(&hosted.base_url)])
        .enforce_origin_validation();
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    Router::new()
        .route_service(PATH, service)
        .layer(middleware::from_fn_with_state(
            Arc::new(hosted.identify),
            door::<I>,
        ))
}

/// Enough for the largest body over a slow line; one that never ends would keep its connection's
/// place for good.
const PATIENCE: Duration = Duration::from_secs(30);
/// Arguments are short; nobody sends files here.
const MAX_REQUEST_BYTES: usize = 256 * 1024;
/// The longest answer is a page of a list, or the list of tools.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Whoever was identified.
#[derive(Clone)]
struct Caller {
    extensions: Extensions,
    is_signed_in: bool,
    /// Where the caller is, as far as proxies say.
    forwarded_for: Vec<HeaderValue>,
}

async fn door<I: Identify>(
    State(identify): State<Arc<I>>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers_mut();
    headers.remove(COOKIE);
    let forwarded_for = headers.get_all(FORWARDED_FOR).iter().cloned().collect();
    let identified = match identify.identify(headers.clone()).await {
        Ok(identified) => identified,
        Err(refusal) => return refusal,
    };
    let is_signed_in = identified.is_some();
    let mut extensions = identified.unwrap_or_default();
    extensions.extend(request.extensions().clone());
    request.extensions_mut().insert(Caller {
        extensions,
        is_signed_in,
        forwarded_for,
    });
    let request = match single(request).await {
        Ok(request) => request,
        Err(refusal) => return refusal,
    };
    let mut response = next.run(request).await;
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    finished(response).await
}

/// The request, if its body is one message: what is no JSON and what is a batch is refused here,
/// since the SDK takes both for a wrong media type. The body of other methods is not read.
async fn single(request: Request) -> Result<Request, Response> {
    if request.method() != Method::POST {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    let bytes = match timeout(PATIENCE, to_bytes(body, MAX_REQUEST_BYTES)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return Err(problem(&Problem::content_too_large())),
        Err(_) => return Err(problem(&Problem::invalid_request("the body took too long"))),
    };
    let refused = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_)) => return Ok(Request::from_parts(parts, Body::from(bytes))),
        Ok(_) => (-32600, "Send one message at a time."),
        Err(_) => (-32700, "The body is no JSON."),
    };
    let (code, message) = refused;
    let body = json!({
        "jsonrpc": "2.0",
        "id": null,
        "error": {"code": code, "message": message},
    });
    let kind = [(CONTENT_TYPE, "application/json")];
    Err((StatusCode::BAD_REQUEST, kind, body.to_string()).into_response())
}

/// What the SDK's answers lack: the security schemes beside `_meta` in a list of tools, for its
/// type has no room for them, and the form that refusals have everywhere else.
async fn finished(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let is_json = parts
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !is_json && !parts.status.is_client_error() && !parts.status.is_server_error() {
        return Response::from_parts(parts, body);
    }
    let Ok(bytes) = to_bytes(body, MAX_ANSWER_BYTES).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    parts.headers.remove(CONTENT_LENGTH);
    let bytes = if is_json {
        with_schemes(bytes)
    } else {
        parts
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        refusal(parts.status, &bytes).into()
    };
    Response::from_parts(parts, Body::from(bytes))
}

fn with_schemes(bytes: Bytes) -> Bytes {
    const LIST: &[u8] = b"\"tools\":[";
    if !bytes.windows(LIST.len()).any(|window| window == LIST) {
        return bytes;
    }
    let Ok(mut message) = serde_json::from_slice::<Value>(&bytes) else {
        return bytes;
    };
    let tools = message.pointer_mut("/result/tools");
    for tool in tools.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(schemes) = tool.pointer("/_meta/securitySchemes").cloned()
            && let Value::Object(members) = tool
        {
            members.insert("securitySchemes".to_owned(), schemes);
        }
    }
    message.to_string().into()
}

fn problem(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_REQUEST);
    let kind = [(CONTENT_TYPE, MEDIA_TYPE)];
    (status, kind, problem.to_json()).into_response()
}

/// The SDK refuses in plain words; the API in problems.
fn refusal(status: StatusCode, said: &[u8]) -> String {
    let said: String = String::from_utf8_lossy(said)
        .chars()
        .take(MAX_SAID)
        .collect();
    let problem = match status {
        StatusCode::FORBIDDEN => Problem::new(403, "forbidden", "This is refused."),
        StatusCode::METHOD_NOT_ALLOWED => Problem::method_not_allowed(),
        StatusCode::NOT_ACCEPTABLE => Problem::new(406, "not_acceptable", ""),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Problem::new(415, "unsupported_media_type", ""),
        StatusCode::PAYLOAD_TOO_LARGE => Problem::content_too_large(),
        _ => Problem::invalid_request(""),
    };
    problem.with_detail(said).to_json()
}

/// One sentence.
const MAX_SAID: usize = 300;
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The API's router in this process.
struct InProcess {
    api: Router,
}

impl Backend for InProcess {
    fn has_credential(&self, caller: &Extensions) -> bool {
        caller
            .get::<Caller>()
            .is_some_and(|caller| caller.is_signed_in)
    }

    fn carry(&self, request: http::Request<Bytes>, caller: &Extensions) -> Carried {
        let mut request = request.map(Body::from);
        if let Some(caller) = caller.get::<Caller>() {
            request.extensions_mut().extend(caller.extensions.clone());
            for address in &caller.forwarded_for {
                request.headers_mut().append(FORWARDED_FOR, address.clone());
            }
        }
        let api = self.api.clone();
        Box::pin(async move {
            let answer: Result<Response, Infallible> = api.oneshot(request).await;
            let Ok(response) = answer;
            let (parts, body) = response.into_parts();
            match to_bytes(body, MAX_ANSWER_BYTES).await {
                Ok(bytes) => http::Response::from_parts(parts, bytes),
                Err(error) => {
                    tracing::error!(%error, "an answer of the API could not be read");
                    let mut response = http::Response::new(Bytes::new());
                    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                    response
                }
            }
        })
    }
}

/// Names by which the platform is called: its own, and on loopback all names of loopback.
fn hosts(base_url: &str) -> Vec<String> {
    let authority = base_url
        .split_once("://")
        .map_or(base_url, |(_, rest)| rest);
    let mut hosts = vec![authority.to_owned()];
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, format!(":{port}")),
        _ => (authority, String::new()),
    };
    if LOOPBACK.contains(&host) {
        hosts.extend(LOOPBACK.map(|name| format!("{name}{port}")));
    }
    hosts
}

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The platform's own origin, with its port.
fn origin(base_url: &str) -> String {
    let (scheme, authority) = base_url.split_once("://").unwrap_or(("https", base_url));
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.ends_with(']'));
    match (has_port, scheme) {
        (true, _) => base_url.to_owned(),
        (false, "http") => format!("{base_url}:80"),
        (false, _) => format!("{base_url}:443"),
    }
}
