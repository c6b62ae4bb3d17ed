//! Reader of the Engine API: lists and the live event stream.
//!
//! Objects are returned as the engine wrote them ([`serde_json::Value`]), so that fields of a newer
//! engine reach the caller. The crate `types` has types for these objects.

mod call;
mod error;
mod events;
mod query;
mod websocket;

pub use bytes::Bytes;
pub use call::{Call, Download, path};
pub use error::{ApiError, HttpError, Problem};
pub use events::{Event, Events};
pub use http::Method;
pub use query::{EventQuery, Filters, ListQuery, Transport};
pub use serde_json::Value;

use std::time::Duration;

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use types::percent::escaped;

use crate::{Config, ConnectError, HostPort, Token, Tokens, connect::Connector, error::Step};

/// A reader of one engine's API.
///
/// Each call uses its own connection, because the callers are commands and watchers, which make few
/// calls.
#[derive(Clone)]
pub struct Api {
    connector: Connector,
    tokens: Tokens,
    agent: String,
}

/// Status of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineStatus {
    /// Its link to the platform; absent in an engine without one.
    pub platform: Option<PlatformLink>,
}

/// An engine's link to its platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlatformLink {
    /// True if the link is connected. Otherwise the engine serves with its last state.
    pub is_up: bool,
    /// Time since the last message of the platform.
    pub silence: Duration,
}

impl PlatformLink {
    /// Creates a link with this state.
    pub fn new(is_up: bool, silence: Duration) -> Self {
        Self { is_up, silence }
    }

    /// Parses `up;silence=3`. Parameters of later engines are ignored; an unknown first word
    /// is parsed as `None`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let is_up = match parts.next()? {
            "up" => true,
            "lost" => false,
            _ => return None,
        };
        let seconds = parts.find_map(|part| part.strip_prefix("silence="))?;
        let silence = Duration::from_secs(seconds.parse().ok()?);
        Some(Self { is_up, silence })
    }
}

impl Api {
    /// Creates a reader for the engine of this configuration, with its token.
    ///
    /// # Errors
    /// The trust or the address cannot be used.
    pub fn new(config: &Config) -> Result<Self, ConnectError> {
        let connector = Connector::new(
            config.engine.clone(),
            &config.trust,
            &config.proxies,
            &[b"http/1.1"],
        )?;
        let agent = format!("{}/{}", config.details.agent, config.details.version);
        Ok(Self {
            connector,
            tokens: config.tokens.clone(),
            agent,
        })
    }

    /// `GET /api/auth`: checks that the engine accepts the token, and returns the engine's status.
    ///
    /// # Errors
    /// As [`call`](Self::call); the engine's refusal of the token is [`ApiError::Refused`].
    ///
    /// # Cancellation
    /// Safe: dropping the future closes the connection.
    pub async fn status(&self) -> Result<EngineStatus, ApiError> {
        let response = self
            .send(
                "/api/auth".to_owned(),
                "application/json",
                StatusCode::NO_CONTENT,
            )
            .await?;
        let link = response.headers().get("svc-platform-link");
        Ok(EngineStatus {
            platform: link.and_then(|link| PlatformLink::parse(link.to_str().ok()?)),
        })
    }

    /// Asks the engine, without a token, if it serves the host name of its address. Engines close
    /// the connections of agents to other names without a reason.
    ///
    /// Only for the crates of this project.
    ///
    /// # Errors
    /// As [`call`](Self::call); [`ApiError::Refused`] if the name belongs to something else.
    ///
    /// # Cancellation
    /// Safe: dropping the future closes the connection.
    #[doc(hidden)]
    pub async fn check_name(&self) -> Result<(), ApiError> {
        let request = ApiRequest {
            method: Method::GET,
            target: "/api/auth".to_owned(),
            accept: "application/json",
            body: None,
            // An engine asks for a token. Limits and outages are not about the name.
            expected: |status: &StatusCode| {
                !status.is_client_error()
                    || matches!(
                        *status,
                        StatusCode::UNAUTHORIZED
                            | StatusCode::FORBIDDEN
                            | StatusCode::REQUEST_TIMEOUT
                            | StatusCode::TOO_MANY_REQUESTS
                    )
            },
        };
        self.request_once(&request, None).await.map(drop)
    }

    /// `GET /api/clients` (EN-1).
    ///
    /// # Errors
    /// As [`call`](Self::call).
    ///
    /// # Cancellation
    /// Safe: dropping the future closes the connection.
    pub async fn clients(&self, query: &ListQuery) -> Result<Vec<Value>, ApiError> {
        self.list("/api/clients", query).await
    }

    /// `GET /api/tunnels` (EN-1).
    ///
    /// # Errors
    /// As [`call`](Self::call).
    ///
    /// # Cancellation
    /// Safe: dropping the future closes the connection.
    pub async fn tunnels(&self, query: &ListQuery) -> Result<Vec<Value>, ApiError> {
        self.list("/api/tunnels", query).await
    }

    /// The snapshot, then every change (`GET /api/sse`, EN-3, or `GET /api/websocket`, EN-4).
    ///
    /// # Errors
    /// As [`call`](Self::call); a refusal by the engine is [`ApiError::Refused`] on both
    /// transports.
    ///
    /// # Cancellation
    /// Safe: dropping the future closes the connection.
    pub async fn events(&self, query: EventQuery) -> Result<Events, ApiError> {
        let EventQuery { transport, params } = query;
        match transport {
            Transport::Sse => {
                let response = self.get("/api/sse", params, "text/event-stream").await?;
                Ok(Events::of_body(response.into_body()))
            }
            Transport::WebSocket => {
                let host = authority(self.connector.address());
                let url = format!("wss://{host}{}", target("/api/websocket", params));
                let token = self.tokens.token().await?;
                let opened = self.open_socket(&url, &token).await;
                let socket = match self.replacement(&token, &opened).await? {
                    Some(token) => self.open_socket(&url, &token).await,
                    None => opened,
                };
                Ok(Events::of_socket(socket?))
            }
        }
    }

    async fn open_socket(&self, url: &str, token: &Token) -> Result<websocket::Socket, ApiError> {
        let stream = self.connector.connect().await?;
        websocket::open(url, token, &self.agent, stream).await
    }

    /// Returns another token if the engine has refused this one and the provider has another.
    async fn replacement<T>(
        &self,
        token: &Token,
        answer: &Result<T, ApiError>,
    ) -> Result<Option<Token>, ConnectError> {
        match answer {
            Err(ApiError::Refused(problem)) if problem.status == StatusCode::UNAUTHORIZED => {
                self.tokens.replacement(token).await
            }
            _ => Ok(None),
        }
    }

    async fn list(&self, path: &str, query: &ListQuery) -> Result<Vec<Value>, ApiError> {
        let params = query.params();
        let response = self.get(path, params, "application/json").await?;
        let body = read(response.into_body()).await?;
        serde_json::from_slice(&body)
            .map_err(|error| ApiError::Unexpected(format!("not a list: {error}")))
    }

    async fn get(
        &self,
        path: &str,
        params: serde_json::Map<String, Value>,
        accept: &str,
    ) -> Result<http::Response<Incoming>, ApiError> {
        self.send(target(path, params), accept, StatusCode::OK)
            .await
    }

    /// A `GET`; every unexpected response is an error.
    async fn send(
        &self,
        target: String,
        accept: &str,
        expected: StatusCode,
    ) -> Result<http::Response<Incoming>, ApiError> {
        self.request_with_retry(ApiRequest {
            method: Method::GET,
            target,
            accept,
            body: None,
            expected: |status: &StatusCode| *status == expected,
        })
        .await
    }

    /// Sends one request, and repeats it if the token is refused and the provider has another one.
    /// An unexpected response is an error.
    async fn request_with_retry<E: Fn(&StatusCode) -> bool>(
        &self,
        request: ApiRequest<'_, E>,
    ) -> Result<http::Response<Incoming>, ApiError> {
        let token = self.tokens.token().await?;
        let answer = self.request_once(&request, Some(&token)).await;
        match self.replacement(&token, &answer).await? {
            Some(token) => self.request_once(&request, Some(&token)).await,
            None => answer,
        }
    }

    async fn request_once<E: Fn(&StatusCode) -> bool>(
        &self,
        request: &ApiRequest<'_, E>,
        token: Option<&Token>,
    ) -> Result<http::Response<Incoming>, ApiError> {
        let mut builder = Request::builder()
            .method(request.method.clone())
            .uri(&request.target)
            .header(header::HOST, authority(self.connector.address()))
            .header(header::ACCEPT, request.accept)
            .header(header::USER_AGENT, &self.agent);
        if let Some(token) = token {
            builder = builder.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        if request.body.is_some() {
            builder = builder.header(header::CONTENT_TYPE, "application/json");
        }
        let http_request = builder
            .body(Full::new(request.body.clone().unwrap_or_default()))
            // The token contains control characters, for example because it was read from the wrong
            // file.
            .map_err(|_invalid| ApiError::Unexpected("the token cannot be sent".to_owned()))?;
        let stream = self.connector.connect().await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(HttpError)?;
        // Owned by the response: the task ends when the body was read or dropped.
        tokio::spawn(async move {
            // The reader of the body gets the error, if any.
            drop(connection.await);
        });
        let response = timeout(HEAD_TIMEOUT, sender.send_request(http_request))
            .await
            .map_err(|_elapsed| ConnectError::TimedOut(Step::Exchange))?
            .map_err(HttpError)?;
        if (request.expected)(&response.status()) {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let body = read(response.into_body()).await?;
        Err(ApiError::Refused(Problem::parse(status, &body)))
    }
}

/// One request.
struct ApiRequest<'a, E> {
    method: Method,
    target: String,
    accept: &'a str,
    body: Option<Bytes>,
    /// Statuses that are not errors.
    expected: E,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api")
            .field("engine", self.connector.address())
            .finish_non_exhaustive()
    }
}

/// A path with its `params`.
fn target(path: &str, params: serde_json::Map<String, Value>) -> String {
    if params.is_empty() {
        return path.to_owned();
    }
    let params = Value::Object(params).to_string();
    format!("{path}?params={}", escaped(&params))
}

async fn read(body: Incoming) -> Result<Bytes, ApiError> {
    let collected = timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(ApiError::Unexpected(error.to_string())),
        Err(_elapsed) => Err(ConnectError::TimedOut(Step::Exchange).into()),
    }
}

/// The default port is left out, as browsers do, because some front ends compare the text.
fn authority(address: &HostPort) -> String {
    let text = address.to_string();
    match text.strip_suffix(":443") {
        Some(host) if address.port() == 443 => host.to_owned(),
        _ => text,
    }
}

/// Limit of a response body. A list of 10,000 tunnels takes a few megabytes.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// Time limit of a response head: the engine answers from memory.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Time limit of a list over a slow line.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
        time::Instant,
    };

    use super::*;

    /// A response whose head announces this body length, and the stream that supplies the body.
    async fn answer(length: usize) -> (Incoming, DuplexStream) {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(ours))
            .await
            .unwrap();
        tokio::spawn(connection);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        let request = Request::new(Full::new(Bytes::new()));
        let response = tokio::spawn(async move { sender.send_request(request).await });
        // A head before any request would end the connection.
        theirs.read_u8().await.unwrap();
        theirs.write_all(head.as_bytes()).await.unwrap();
        (response.await.unwrap().unwrap().into_body(), theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_times_out() {
        let (body, _theirs) = answer(1).await;
        let began = Instant::now();
        let read = read(body).await;
        assert!(
            matches!(
                read,
                Err(ApiError::Connect(ConnectError::TimedOut(Step::Exchange)))
            ),
            "{read:?}"
        );
        assert_eq!(began.elapsed().as_secs(), 60);
    }

    #[tokio::test]
    async fn a_response_is_limited_in_size() {
        let most = 64 * 1024 * 1024;
        for (length, is_read) in [(most, true), (most + 1, false)] {
            let (body, mut theirs) = answer(length).await;
            // After reading enough, a client closes the connection.
            let bytes = vec![b' '; length];
            let (read, _gone) = tokio::join!(read(body), theirs.write_all(&bytes));
            assert_eq!(read.is_ok(), is_read, "{length}");
        }
    }

    #[test]
    fn the_state_of_the_link_is_parsed_strictly() {
        let link = |is_up, seconds| {
            let silence = Duration::from_secs(seconds);
            Some(PlatformLink { is_up, silence })
        };
        assert_eq!(PlatformLink::parse("up;silence=3"), link(true, 3));
        assert_eq!(
            PlatformLink::parse("lost; a=b; silence=62"),
            link(false, 62)
        );
        for text in ["", "up", "down;silence=1", "up;silence=-1", "up;silence="] {
            assert_eq!(PlatformLink::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_default_port_is_not_sent() {
        let authority = |text: &str| authority(&text.parse().unwrap());
        assert_eq!(authority("engine.example"), "engine.example");
        assert_eq!(authority("engine.localhost:8443"), "engine.localhost:8443");
        assert_eq!(authority("[::1]:443"), "[::1]");
    }
}
