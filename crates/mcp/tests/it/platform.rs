//! A platform with one user and an API with configured answers.

use std::sync::Arc;
use std::sync::Mutex;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::HeaderValue;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use http::{Extensions, HeaderMap, Request, StatusCode};
use mcp::{
    CallerAuthenticator, CallerFuture, Engines, HeldPermissions, HostedEndpoint, ProjectName,
    ResponseFuture, TerminalRequest,
};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use types::permission::Permission;

pub(crate) const BASE_URL: &str = "https://svc.example.com";
/// The origin of a web client.
pub(crate) const PAGE_ORIGIN: &str = "https://app.example.com";

/// The endpoint over the recording API, and over a recording engine.
pub(crate) struct Platform {
    endpoint: Router,
    asked: Arc<Mutex<Vec<ApiRequest>>>,
    asked_of_engine: Arc<Mutex<Vec<EngineRequest>>>,
}

/// A request that an engine received.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EngineRequest {
    pub(crate) project: ProjectName,
    /// The permission that the engine will require.
    pub(crate) needed: Permission,
    pub(crate) method: String,
    /// Path and query.
    pub(crate) address: String,
    /// The body, if there is one.
    pub(crate) body: Value,
    /// Names and values of all headers.
    pub(crate) headers: Vec<(String, String)>,
    /// The caller, from the request extension.
    pub(crate) by: String,
}

/// A request that the API received.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiRequest {
    pub(crate) line: String,
    pub(crate) body: Value,
    /// The caller, from the request extension.
    pub(crate) by: String,
}

/// The extension that identifies a caller to the API.
#[derive(Clone)]
struct Person(&'static str);

struct TestAuthenticator;

impl CallerAuthenticator for TestAuthenticator {
    fn identify(&self, headers: HeaderMap) -> CallerFuture {
        Box::pin(async move {
            assert!(!headers.contains_key("cookie"), "cookies are not looked at");
            match headers
                .get(AUTHORIZATION)
                .map(|value| value.to_str().unwrap())
            {
                None => Ok(None),
                Some("Bearer good") => {
                    let mut extensions = Extensions::new();
                    extensions.insert(Person("ada"));
                    Ok(Some(extensions))
                }
                // Some permissions, separated by plus signs.
                Some(narrow) if narrow.starts_with("Bearer holds:") => {
                    let names = narrow.trim_start_matches("Bearer holds:").split('+');
                    let names = names.filter(|name| !name.is_empty());
                    let mut extensions = Extensions::new();
                    extensions.insert(Person("ada"));
                    extensions.insert(HeldPermissions(
                        names.map(|name| name.parse().unwrap()).collect(),
                    ));
                    Ok(Some(extensions))
                }
                Some(_) => {
                    let challenge = [(WWW_AUTHENTICATE, "Bearer error=\"invalid_token\"")];
                    Err((StatusCode::UNAUTHORIZED, challenge).into_response())
                }
            }
        })
    }
}

/// Every engine. It gives the same answers as the API.
struct Engine {
    asked: Arc<Mutex<Vec<EngineRequest>>>,
    answers: Answers,
}

impl Engines for Engine {
    fn send_request(
        &self,
        project: ProjectName,
        needed: Permission,
        request: Request<Bytes>,
        caller: &Extensions,
    ) -> ResponseFuture {
        let headers = request.headers().iter();
        let one = EngineRequest {
            project,
            needed,
            method: request.method().to_string(),
            address: request.uri().to_string(),
            body: serde_json::from_slice(request.body()).unwrap_or_default(),
            headers: headers
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                .collect(),
            by: name_of(caller),
        };
        let response = (self.answers)(&ApiRequest {
            line: format!("{} {}", request.method(), request.uri()),
            body: Value::Null,
            by: one.by.clone(),
        });
        self.asked.lock().unwrap().push(one);
        Box::pin(async move {
            let (parts, body) = response.into_parts();
            let bytes = to_bytes(body, 1 << 20).await.unwrap();
            http::Response::from_parts(parts, bytes)
        })
    }

    /// Answers with the request that it received.
    fn terminal(
        &self,
        project: ProjectName,
        needed: Permission,
        ask: TerminalRequest,
        credential: HeaderValue,
        caller: &Extensions,
    ) -> ResponseFuture {
        let asked = json!({
            "project": format!("{project:?}"),
            "needed": needed.to_string(),
            "act": format!("{:?}", ask.act),
            "arguments": ask.arguments,
            "agent": [ask.agent.name, ask.agent.version],
            "credential": credential.to_str().unwrap(),
            "by": name_of(caller),
        });
        let answer = (self.answers)(&ApiRequest {
            line: "terminal".to_owned(),
            body: Value::Null,
            by: name_of(caller),
        });
        Box::pin(async move {
            if answer.status().is_success() {
                return http::Response::new(asked.to_string().into());
            }
            let (parts, body) = answer.into_parts();
            let bytes = to_bytes(body, 1 << 20).await.unwrap();
            http::Response::from_parts(parts, bytes)
        })
    }
}

type Answers = Arc<dyn Fn(&ApiRequest) -> Response + Send + Sync>;

impl Platform {
    /// A platform whose API gives these answers.
    pub(crate) fn answering(
        answers: impl Fn(&ApiRequest) -> Response + Send + Sync + 'static,
    ) -> Self {
        let (asked, asked_of_engine) = <(Arc<_>, Arc<_>)>::default();
        let answers: Answers = Arc::new(answers);
        let engines = Engine {
            asked: Arc::clone(&asked_of_engine),
            answers: Arc::clone(&answers),
        };
        let state = (Arc::clone(&asked), answers);
        let api = Router::new().fallback(record).with_state(state);
        let endpoint = mcp::hosted(HostedEndpoint {
            base_url: BASE_URL.to_owned(),
            api,
            identify: TestAuthenticator,
            engines,
            origins: vec![PAGE_ORIGIN.parse().unwrap()],
        });
        Self {
            endpoint,
            asked,
            asked_of_engine,
        }
    }

    /// One whose API answers every request with the same JSON.
    pub(crate) fn with(status: u16, body: Value) -> Self {
        Self::answering(move |_| json_response(status, &body))
    }

    pub(crate) fn asked(&self) -> Vec<ApiRequest> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn asked_of_engine(&self) -> Vec<EngineRequest> {
        self.asked_of_engine.lock().unwrap().clone()
    }

    /// Sends a message like a client of the revision of 2025, with additional `headers`.
    pub(crate) async fn send(&self, message: &Value, headers: &[(&str, &str)]) -> (u16, Value) {
        let response = self.send_raw(message.to_string(), headers).await;
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), 1 << 22).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    pub(crate) async fn send_raw(&self, body: String, headers: &[(&str, &str)]) -> Response {
        let mut request = Request::post(mcp::PATH)
            .header(HOST, "svc.example.com")
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .unwrap();
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        self.endpoint.clone().oneshot(request).await.unwrap()
    }

    /// Sends a request as it is, except for the host.
    pub(crate) async fn send_request(&self, mut request: Request<Body>) -> Response {
        let host = HeaderValue::from_static("svc.example.com");
        request.headers_mut().insert(HOST, host);
        self.endpoint.clone().oneshot(request).await.unwrap()
    }

    /// Requests the list of tools with a duplicate header.
    pub(crate) async fn send_twice(&self, name: &'static str, value: &str) -> Response {
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        let mut request = Request::post(mcp::PATH)
            .header(HOST, "svc.example.com")
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(list.to_string()))
            .unwrap();
        for _ in 0..2 {
            request.headers_mut().append(name, value.parse().unwrap());
        }
        self.endpoint.clone().oneshot(request).await.unwrap()
    }

    /// Calls a tool. Returns the result.
    pub(crate) async fn call(&self, token: Option<&str>, tool: &str, arguments: Value) -> Value {
        let message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        });
        let bearer = token.map(|token| format!("Bearer {token}"));
        let mut headers = vec![("mcp-protocol-version", "2025-11-25")];
        if let Some(bearer) = &bearer {
            headers.push(("authorization", bearer));
        }
        let (status, answer) = self.send(&message, &headers).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"].clone()
    }
}

pub(crate) fn json_response(status: u16, body: &Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (
        status,
        [(CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}

fn name_of(caller: &Extensions) -> String {
    let person = caller.get::<Person>();
    person.map_or("nobody", |person| person.0).to_owned()
}

async fn record(
    State((asked, answers)): State<(Arc<Mutex<Vec<ApiRequest>>>, Answers)>,
    request: axum::extract::Request,
) -> Response {
    let line = format!("{} {}", request.method(), request.uri());
    let by = name_of(request.extensions());
    let bytes = to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let one = ApiRequest {
        line,
        body: serde_json::from_slice(&bytes).unwrap_or_default(),
        by,
    };
    let response = answers(&one);
    asked.lock().unwrap().push(one);
    response
}
