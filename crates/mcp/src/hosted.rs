//! The endpoints on the platform: Streamable HTTP (MC-1), one request, one response, no session.
//!
//! There are two. The first is public: its list of tools needs no token (MC-2). Some clients start
//! a sign-in only on a 401, and never get one there. The second requires a token for every request.
//!
//! Access is checked first: a bearer token must be valid if present (MC-7), cookies are ignored
//! (MC-5), and a foreign `Origin` or `Host` is refused. After that the SDK implements the protocol,
//! and calls go to the API's own router in this process, as the identified caller.

mod accept;
mod cors;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::control::oauth::{MCP, MCP_SIGN_IN, PROTECTED_RESOURCE};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, WWW_AUTHENTICATE,
};
use http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use tower::ServiceExt as _;
use types::permission::{Permission, Permissions};
use types::problem::{MEDIA_TYPE, Problem};
use types::tunnel::WebOrigin;

use self::cors::{AllowedOrigins, Page};
use crate::server::{Backend, MAX_REQUEST_BYTES, ResponseFuture, Server, ToolListOmitted};
use crate::tools;
use crate::tools::live::ProjectName;
use crate::tools::terminals::TerminalRequest;

/// Dependencies of the endpoint.
pub struct HostedEndpoint<I, E> {
    /// Public address of the platform, without a trailing slash.
    pub base_url: String,
    /// The API.
    pub api: Router,
    /// Identifies callers by their credentials.
    pub identify: I,
    /// Sends requests to the engines of projects.
    pub engines: E,
    /// Origins of web pages that may call the endpoints, beside the platform's own.
    pub origins: Vec<WebOrigin>,
}

/// Identifies callers by their credentials.
pub trait CallerAuthenticator: Send + Sync + 'static {
    /// Checks only the `Authorization` of a request.
    fn identify(&self, headers: HeaderMap) -> CallerFuture;
}

/// Extension of a caller: the permissions of a restricted credential.
#[derive(Debug, Clone, Copy)]
pub struct HeldPermissions(pub Permissions);

/// The extensions that identify the caller to the API; `None` without a credential; an error
/// response for an invalid one.
pub type CallerFuture = Pin<Box<dyn Future<Output = Result<Option<Extensions>, Response>> + Send>>;

/// Sends requests to the engines of projects.
pub trait Engines: Send + Sync + 'static {
    /// Sends a request as [`Backend::send_to_engine`] describes. The request has the
    /// `Authorization` of the caller, which is identified by the extensions from
    /// [`CallerAuthenticator`].
    fn send_request(
        &self,
        project: ProjectName,
        needed: Permission,
        request: http::Request<Bytes>,
        caller: &Extensions,
    ) -> ResponseFuture;

    /// Performs an action on a terminal stream as [`Backend::send_to_terminal`] describes, with
    /// the `Authorization` of the caller.
    fn terminal(
        &self,
        project: ProjectName,
        needed: Permission,
        ask: TerminalRequest,
        credential: HeaderValue,
        caller: &Extensions,
    ) -> ResponseFuture;
}

/// Path of the endpoint (MC-1).
pub const PATH: &str = MCP;
/// Path of the endpoint that requires a token for every request.
pub const SIGN_IN_PATH: &str = MCP_SIGN_IN;

/// The endpoints at [`PATH`] and [`SIGN_IN_PATH`].
pub fn hosted<I: CallerAuthenticator, E: Engines>(hosted: HostedEndpoint<I, E>) -> Router {
    let server = Server::new(InProcessApi {
        api: hosted.api,
        engines: hosted.engines,
        base_url: hosted.base_url.as_str().into(),
    });
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_REQUEST_BYTES)
        .with_allowed_hosts(hosts(&hosted.base_url))
        .with_allowed_origins(
            std::iter::once(hosted.base_url.as_str())
                .chain(hosted.origins.iter().map(WebOrigin::as_str))
                .map(cors::with_port),
        )
        .enforce_origin_validation();
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    Router::new()
        .route_service(PATH, service.clone())
        .route_service(SIGN_IN_PATH, service)
        .layer(middleware::from_fn_with_state(
            Access {
                identify: Arc::new(hosted.identify),
                origins: AllowedOrigins::new(&hosted.base_url, hosted.origins),
                metadata: format!("{}{}", hosted.base_url, PROTECTED_RESOURCE.path).into(),
            },
            check_access::<I>,
        ))
}

/// Dependencies of [`check_access`].
struct Access<I> {
    identify: Arc<I>,
    origins: AllowedOrigins,
    /// Address of the metadata of the origin. The path of an endpoint follows in the address of its
    /// own (RFC 9728 section 3.1).
    metadata: Arc<str>,
}

impl<I> Clone for Access<I> {
    fn clone(&self) -> Self {
        Self {
            identify: Arc::clone(&self.identify),
            origins: self.origins.clone(),
            metadata: Arc::clone(&self.metadata),
        }
    }
}

/// Enough for the largest body over a slow line. A body without an end would otherwise occupy a
/// connection slot forever.
const WAIT_LIMIT: Duration = Duration::from_secs(30);
/// The longest response is a page of a list, or the list of tools.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// The identified caller.
#[derive(Clone)]
struct Caller {
    /// Path of the endpoint that it called.
    path: &'static str,
    extensions: Extensions,
    /// The `Authorization` of the caller.
    credential: Option<HeaderValue>,
    /// Client addresses, as proxies report them.
    forwarded_for: Vec<HeaderValue>,
}

async fn check_access<I: CallerAuthenticator>(
    State(access): State<Access<I>>,
    request: Request,
    next: Next,
) -> Response {
    // Checked before the caller can find out if a credential is valid.
    let page = match access.origins.page(request.headers()) {
        Page::Own => None,
        Page::Listed(origin) => Some(origin),
        Page::Foreign => {
            let foreign = Problem::new(403, "forbidden", "Request refused.");
            return problem(&foreign.with_detail("Origin is not allowed."));
        }
    };
    let mut response = if page.is_some() && cors::is_preflight(request.method(), request.headers())
    {
        cors::preflight()
    } else {
        let is_sign_in = request.uri().path() == SIGN_IN_PATH;
        let path = if is_sign_in { SIGN_IN_PATH } else { PATH };
        let response = serve(&*access.identify, request, path, next).await;
        name_metadata(response, &access.metadata, path)
    };
    if let Some(origin) = page {
        cors::allow(&mut response, origin);
    }
    response
}

/// Serves a request to the endpoint at `path`.
async fn serve<I: CallerAuthenticator>(
    identify: &I,
    mut request: Request,
    path: &'static str,
    next: Next,
) -> Response {
    let is_post = request.method() == Method::POST;
    let headers = request.headers_mut();
    if headers.get_all(PROTOCOL_VERSION).iter().count() > 1 {
        return problem(&Problem::invalid_request(
            "MCP-Protocol-Version is repeated",
        ));
    }
    headers.remove(COOKIE);
    let forwarded_for = headers.get_all(FORWARDED_FOR).iter().cloned().collect();
    let identified = match identify.identify(headers.clone()).await {
        Ok(None) if path == SIGN_IN_PATH => return unauthenticated(),
        Ok(identified) => identified,
        Err(refusal) => return refusal,
    };
    if is_post {
        if !accept::admits_json(headers) {
            let detail = "The response is JSON, which Accept excludes.";
            return problem(&Problem::new(406, "not_acceptable", detail));
        }
        // The SDK requires both types by name.
        let both = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(ACCEPT, both);
    }
    let credential = headers.get(AUTHORIZATION).cloned();
    let credential = credential.filter(|_| identified.is_some());
    let mut extensions = identified.unwrap_or_default();
    extensions.extend(request.extensions().clone());
    request.extensions_mut().insert(Caller {
        path,
        extensions,
        credential,
        forwarded_for,
    });
    let (mut request, is_list) = match single(request).await {
        Ok(single) => single,
        Err(refusal) => return refusal,
    };
    if is_list {
        request.extensions_mut().insert(ToolListOmitted);
    }
    let mut response = next.run(request).await;
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    complete_response(response, is_list).await
}

/// The 401 that starts the sign-in of a client.
fn unauthenticated() -> Response {
    let refused = Problem::unauthenticated();
    let mut response = problem(&refused);
    let challenge = refused.www_authenticate(None);
    let challenge = challenge.and_then(|challenge| HeaderValue::try_from(challenge).ok());
    let challenge = challenge.unwrap_or(HeaderValue::from_static("Bearer"));
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

/// Adds the address of an endpoint's metadata to the challenge of a 401 (RFC 9728 section 5.1).
/// Clients discard the metadata of another resource (section 3.3).
fn name_metadata(mut response: Response, metadata: &str, path: &str) -> Response {
    let challenge = response.headers().get(WWW_AUTHENTICATE);
    let challenge = challenge.and_then(|challenge| challenge.to_str().ok());
    let Some(challenge) = challenge.filter(|_| response.status() == StatusCode::UNAUTHORIZED)
    else {
        return response;
    };
    let separator = if challenge.contains(' ') { "," } else { "" };
    let challenge = format!("{challenge}{separator} resource_metadata=\"{metadata}{path}\"");
    if let Ok(challenge) = HeaderValue::try_from(challenge) {
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}

/// Returns the request if its body is a single message, and a flag if it requests the list of
/// tools. Invalid JSON and batches are refused here, because the SDK reports both as a wrong media
/// type. The body of other methods is not read.
async fn single(request: Request) -> Result<(Request, bool), Response> {
    if request.method() != Method::POST {
        return Ok((request, false));
    }
    let (parts, body) = request.into_parts();
    let bytes = match timeout(WAIT_LIMIT, to_bytes(body, MAX_REQUEST_BYTES)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return Err(problem(&Problem::content_too_large())),
        Err(_) => return Err(problem(&Problem::invalid_request("the body took too long"))),
    };
    let refused = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(message)) => {
            let is_list = message.get("method").and_then(Value::as_str) == Some("tools/list");
            if !is_message(&message) {
                (-32600, "This is not a JSON-RPC message.")
            } else if serde_json::from_slice::<ClientJsonRpcMessage>(&bytes).is_err() {
                (-32602, "The parameters do not match the method.")
            } else {
                return Ok((Request::from_parts(parts, Body::from(bytes)), is_list));
            }
        }
        Ok(_) => (-32600, "Send one message at a time."),
        Err(_) => (-32700, "The body is not JSON."),
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

/// True if an object is a request, a notification or a response of JSON-RPC 2.0 (sections 4 and 5).
/// The SDK would report other objects as a wrong media type.
fn is_message(message: &Map<String, Value>) -> bool {
    let id = message.get("id");
    let is_version = message.get("jsonrpc").and_then(Value::as_str) == Some("2.0");
    let is_id = id.is_none_or(|id| id.is_string() || id.is_i64() || id.is_u64());
    let is_call = message.get("method").is_some_and(Value::is_string)
        && message
            .get("params")
            .is_none_or(|params| params.is_object() || params.is_array());
    let is_answer =
        id.is_some() && (message.contains_key("result") || message.contains_key("error"));
    is_version && is_id && (is_call || is_answer)
}

/// Adds to the SDK's responses: the list of tools, because the SDK's type has no field for security
/// schemes next to `_meta`, and the common form of error responses.
async fn complete_response(response: Response, is_list: bool) -> Response {
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
    let bytes = if is_json && is_list {
        with_tools(bytes)
    } else if is_json {
        bytes
    } else {
        parts
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        refusal(parts.status, &bytes).into()
    };
    Response::from_parts(parts, Body::from(bytes))
}

/// Inserts the list of tools where the SDK left it empty; an error has no such member.
fn with_tools(bytes: Bytes) -> Bytes {
    // Quotation marks in strings are escaped, so this always matches the member.
    const EMPTY: &[u8] = b"\"tools\":[]";
    let mut windows = bytes.windows(EMPTY.len());
    let Some(at) = windows.position(|window| window == EMPTY) else {
        return bytes;
    };
    let (before, rest) = bytes.split_at(at);
    let (_empty, after) = rest.split_at(EMPTY.len());
    [
        before,
        b"\"tools\":",
        tools::documents_json().as_bytes(),
        after,
    ]
    .concat()
    .into()
}

fn problem(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_REQUEST);
    let kind = [(CONTENT_TYPE, MEDIA_TYPE)];
    (status, kind, problem.to_json()).into_response()
}

/// The SDK's refusals are plain text; the API's are problems.
fn refusal(status: StatusCode, text: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(text)
        .chars()
        .take(MAX_SAID)
        .collect();
    let problem = match status {
        StatusCode::FORBIDDEN => Problem::new(403, "forbidden", "Request refused."),
        StatusCode::METHOD_NOT_ALLOWED => Problem::method_not_allowed(),
        StatusCode::NOT_ACCEPTABLE => Problem::new(406, "not_acceptable", ""),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Problem::new(415, "unsupported_media_type", ""),
        StatusCode::PAYLOAD_TOO_LARGE => Problem::content_too_large(),
        _ => Problem::invalid_request(""),
    };
    problem.with_detail(text).to_json()
}

/// Limit of one sentence.
const MAX_SAID: usize = 300;
const PROTOCOL_VERSION: &str = "mcp-protocol-version";
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The API's router in this process.
struct InProcessApi<E> {
    api: Router,
    engines: E,
    base_url: Arc<str>,
}

impl<E: Engines> Backend for InProcessApi<E> {
    fn base_url(&self) -> Arc<str> {
        Arc::clone(&self.base_url)
    }

    fn resource_path(&self, caller: &Extensions) -> &'static str {
        caller.get::<Caller>().map_or("", |caller| caller.path)
    }

    fn has_credential(&self, caller: &Extensions) -> bool {
        caller
            .get::<Caller>()
            .is_some_and(|caller| caller.credential.is_some())
    }

    fn known_permissions(&self, caller: &Extensions) -> Option<Permissions> {
        let caller = caller.get::<Caller>()?;
        caller
            .extensions
            .get::<HeldPermissions>()
            .map(|held| held.0)
    }

    fn send_request(&self, request: http::Request<Bytes>, caller: &Extensions) -> ResponseFuture {
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
                    tracing::error!(%error, "a response of the API could not be read");
                    let mut response = http::Response::new(Bytes::new());
                    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                    response
                }
            }
        })
    }

    fn send_to_engine(
        &self,
        project: ProjectName,
        needed: Permission,
        mut request: http::Request<Bytes>,
        caller: &Extensions,
    ) -> ResponseFuture {
        let nobody = Extensions::new();
        let caller = caller.get::<Caller>();
        if let Some(mut credential) = caller.and_then(|caller| caller.credential.clone()) {
            credential.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, credential);
        }
        let known = caller.map_or(&nobody, |caller| &caller.extensions);
        self.engines.send_request(project, needed, request, known)
    }

    fn send_to_terminal(
        &self,
        project: ProjectName,
        needed: Permission,
        ask: TerminalRequest,
        caller: &Extensions,
    ) -> ResponseFuture {
        let caller = caller.get::<Caller>();
        let known = caller.and_then(|caller| Some((caller, caller.credential.clone()?)));
        let Some((caller, mut credential)) = known else {
            // A caller without a credential was asked to sign in before.
            return Box::pin(async {
                let mut response = http::Response::new(Bytes::new());
                *response.status_mut() = StatusCode::UNAUTHORIZED;
                response
            });
        };
        credential.set_sensitive(true);
        self.engines
            .terminal(project, needed, ask, credential, &caller.extensions)
    }
}

/// Host names of the platform: its own, and on loopback all names of loopback.
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

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_endless_message_times_out() {
        let never = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let request = http::Request::post(PATH).body(never).unwrap();
        let began = Instant::now();
        let read = timeout(Duration::from_mins(5), single(request)).await;
        let refused = read.expect("the read times out").err().unwrap();
        assert_eq!(refused.status(), 400);
        assert_eq!(began.elapsed().as_secs(), 30);
    }

    #[tokio::test]
    async fn a_response_is_limited_in_size() {
        let status = async |bytes: usize| {
            let kind = [(CONTENT_TYPE, "application/json")];
            let answer = (kind, vec![b' '; bytes]).into_response();
            complete_response(answer, false).await.status()
        };
        assert_eq!(status(4 * 1024 * 1024).await, 200);
        assert_eq!(status(4 * 1024 * 1024 + 1).await, 500);
    }
}
