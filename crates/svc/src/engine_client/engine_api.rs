//! Client of the Engine API for tools: one request to one project, with the given bearer token.

use std::{path::Path, time::Duration};

use api::webtty::{EVENTS, EXPORT};
use bytes::Bytes;
use client::{HostPort, Proxies, proxy::ParseProxyError};
use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{CONTENT_TYPE, WWW_AUTHENTICATE},
};
use reqwest::{
    Client,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect,
};
use types::problem::{MEDIA_TYPE, Problem};

use crate::{
    failure::{Failure, chain},
    platform::read_ca_certificates,
    proxy,
};

/// The CA certificates for engines.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TrustAnchors<'a> {
    /// The certificates of the system.
    System,
    /// The certificates of the system, and those of this PEM file.
    SystemAnd(&'a Path),
    /// Only the certificates of this PEM file.
    Only(&'a Path),
}

/// An HTTP client for engines.
#[derive(Clone, Debug)]
pub(crate) struct EngineApi {
    http: Client,
    proxies: Proxies,
}

impl EngineApi {
    /// Creates the client. Does not connect yet.
    pub(crate) fn new(authorities_of: TrustAnchors<'_>, proxies: Proxies) -> Result<Self, Failure> {
        let selection = proxies.clone();
        let builder = Client::builder()
            .timeout(RESPONSE_TIMEOUT)
            .dns_resolver(LocalhostResolver)
            .no_proxy()
            // An engine whose proxy cannot be used is refused before the request.
            .proxy(reqwest::Proxy::custom(move |url| {
                let proxy = proxy::of_url(&selection, url).ok().flatten();
                proxy.map(client::Proxy::expose_url)
            }))
            .https_only(true)
            // A bearer token must only be sent to the intended engine.
            .redirect(redirect::Policy::none());
        let builder = match authorities_of {
            TrustAnchors::System => builder,
            TrustAnchors::SystemAnd(path) => builder.tls_certs_merge(read_ca_certificates(path)?),
            TrustAnchors::Only(path) => builder.tls_certs_only(read_ca_certificates(path)?),
        };
        let http = builder
            .build()
            .map_err(|error| Failure::from_error("no connection to engines can be made", error))?;
        Ok(Self { http, proxies })
    }

    /// Sends a request to its path on an engine, with only its own headers. An error becomes a 502
    /// response with a problem that contains the next step.
    pub(crate) async fn send_request(
        &self,
        engine: &HostPort,
        request: Request<Bytes>,
    ) -> Response<Bytes> {
        let path = request.uri().path().to_owned();
        match self.attempt(engine, request).await {
            Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED => {
                problem_response(&Problem::new(502, "credential_unknown_to_engine", UNKNOWN))
            }
            Ok(answer) => answer,
            Err(ExchangeError::TooLarge) => {
                problem_response(&Problem::new(502, "answer_too_large", too_large(&path)))
            }
            Err(ExchangeError::Proxy(error)) => {
                let problem = Problem::new(502, "engine_unreachable", "");
                problem_response(&problem.with_detail(format!("{error}.")))
            }
            Err(ExchangeError::Network(error)) => {
                tracing::warn!(%engine, error = chain(&error), "an engine was not reached");
                let detail = format!(
                    "The engine of this project, {engine}, cannot be reached. Call again in a \
                     minute; if the error persists, tell the user that their engine is not \
                     reachable."
                );
                problem_response(&Problem::new(502, "engine_unreachable", "").with_detail(detail))
            }
        }
    }

    async fn attempt(
        &self,
        engine: &HostPort,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, ExchangeError> {
        self.proxies
            .route(engine, true)
            .map_err(ExchangeError::Proxy)?;
        let (parts, body) = request.into_parts();
        let mut response = self
            .http
            .request(parts.method, format!("https://{engine}{}", parts.uri))
            .headers(parts.headers)
            .body(body)
            .send()
            .await?;
        let mut read = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if read.len().saturating_add(chunk.len()) > MAX_ANSWER {
                return Err(ExchangeError::TooLarge);
            }
            read.extend_from_slice(&chunk);
        }
        let mut answer = Response::new(Bytes::from(read));
        *answer.status_mut() = response.status();
        *answer.headers_mut() = response.headers().clone();
        Ok(answer)
    }
}

/// Converts a problem to a response.
pub(crate) fn problem_response(problem: &Problem) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(problem.to_json()));
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    let challenge = problem.www_authenticate(None);
    if let Some(challenge) = challenge.and_then(|value| HeaderValue::try_from(value).ok()) {
        headers.insert(WWW_AUTHENTICATE, challenge);
    }
    response
}

enum ExchangeError {
    Network(reqwest::Error),
    /// The setting of the proxy for the engine cannot be used.
    Proxy(ParseProxyError),
    TooLarge,
}

impl From<reqwest::Error> for ExchangeError {
    fn from(error: reqwest::Error) -> Self {
        // The caller logs the address. The query is removed: the filters of a list are private.
        Self::Network(error.without_url())
    }
}

/// Advice for a smaller response, in terms of the tool that uses this path.
fn too_large(path: &str) -> &'static str {
    let last = |path: &str| path.rsplit('/').next().map(str::to_owned);
    let is_operation = |operation| last(path) == last(operation);
    if is_operation(EXPORT) {
        EXPORT_TOO_LARGE
    } else if is_operation(EVENTS) {
        EVENTS_TOO_LARGE
    } else {
        TOO_LARGE
    }
}

/// Resolves names like agents do: names under `localhost` are this machine.
struct LocalhostResolver;

impl Resolve for LocalhostResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // A port in the address takes precedence.
            let host = HostPort::new(name.as_str(), HTTPS)?;
            let addresses = host.resolve().await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

const UNKNOWN: &str = "The engine of this project does not accept this credential. If it was \
                       created seconds ago, the engine may not have received it yet: call again. \
                       If that does not help, have the user sign in again.";
const TOO_LARGE: &str = "The list is longer than 1 MiB. Call again with filters or with a limit.";
const EVENTS_TOO_LARGE: &str = "These records are longer than 1 MiB. Call again with a smaller \
                                limit; to continue, set from_seq to the last seq plus one.";
const EXPORT_TOO_LARGE: &str = "The export is longer than 1 MiB. Call again with a smaller \
                                max_events and the format ndjson or json, whose records are \
                                numbered; to continue, set from_seq to the last seq plus one.";

/// Time limit of a call. Engines answer lists from memory, and a model waits for the result.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of a response in bytes: a list of some thousand tunnels. A model does not read more.
const MAX_ANSWER: usize = 1024 * 1024;
const HTTPS: u16 = 443;

#[cfg(test)]
mod tests {
    use std::{
        net::Ipv4Addr,
        sync::{Arc, Mutex},
    };

    use http::header::AUTHORIZATION;
    use rustls::ServerConfig;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    use serde_json::Value;
    use tempfile::TempDir;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpSocket},
    };
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::commands::server::up::certificates::Certificates;

    /// A TLS server in the role of an engine, which always sends the same response.
    struct Engine {
        directory: TempDir,
        address: HostPort,
        heads: Arc<Mutex<Vec<String>>>,
    }

    impl Engine {
        async fn answering(answer: Vec<u8>) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let files = Certificates::in_directory(directory.path(), "engine.localhost").unwrap();
            let provider = rustls::crypto::aws_lc_rs::default_provider();
            let config = ServerConfig::builder_with_provider(provider.into())
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(
                    vec![CertificateDer::from_pem_file(&files.cert).unwrap()],
                    PrivateKeyDer::from_pem_file(&files.key).unwrap(),
                )
                .unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(config));
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let heads = Arc::new(Mutex::new(Vec::new()));
            let seen = Arc::clone(&heads);
            tokio::spawn(async move {
                loop {
                    let (stream, _peer) = listener.accept().await.unwrap();
                    // A client that does not trust the certificate closes the connection.
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        continue;
                    };
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
                    seen.lock().unwrap().push(head);
                    // The client may close the connection early.
                    stream.write_all(&answer).await.ok();
                    stream.shutdown().await.ok();
                }
            });
            Self {
                directory,
                address: HostPort::new("abcd1234.engine.localhost", port).unwrap(),
                heads,
            }
        }

        async fn ask(&self) -> Response<Bytes> {
            let ca_file = self.directory.path().join("ca.pem");
            let api =
                EngineApi::new(TrustAnchors::SystemAnd(&ca_file), Proxies::default()).unwrap();
            api.send_request(&self.address, request()).await
        }
    }

    fn request() -> Request<Bytes> {
        Request::get("/api/tunnels?params=%7B%7D")
            .header(AUTHORIZATION, "Bearer a.b.c")
            .body(Bytes::new())
            .unwrap()
    }

    fn answer(status: &str, body: &str) -> Vec<u8> {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\nLocation: /x\r\nContent-Length: {length}\r\n\r\n{body}")
            .into()
    }

    /// Status and code of a problem response.
    fn problem(answer: &Response<Bytes>) -> (u16, String) {
        let body: Value = serde_json::from_slice(answer.body()).unwrap();
        assert!(!body["detail"].as_str().unwrap().is_empty(), "{body}");
        (
            answer.status().as_u16(),
            body["code"].as_str().unwrap().to_owned(),
        )
    }

    #[tokio::test]
    async fn only_the_bearer_is_sent() {
        let engine = Engine::answering(answer("200 OK", "[]")).await;
        let list = engine.ask().await;
        assert_eq!(
            (list.status(), &list.body()[..]),
            (StatusCode::OK, &b"[]"[..])
        );
        let heads = engine.heads.lock().unwrap().clone();
        let mut lines: Vec<_> = heads
            .iter()
            .flat_map(|head| head.trim_end().lines())
            .collect();
        lines.sort_unstable();
        let host = format!("host: {}", engine.address);
        assert_eq!(
            lines,
            [
                "accept: */*",
                "authorization: bearer a.b.c",
                "get /api/tunnels?params=%7b%7d http/1.1",
                &host,
            ]
        );
    }

    /// A redirect that is followed would reveal the bearer token.
    #[tokio::test]
    async fn a_redirect_is_not_followed() {
        let engine = Engine::answering(answer("307 Temporary Redirect", "")).await;
        assert_eq!(engine.ask().await.status(), StatusCode::TEMPORARY_REDIRECT);
        assert_eq!(engine.heads.lock().unwrap().len(), 1);
    }

    /// The platform accepted the credential, so a new sign-in would not help.
    #[tokio::test]
    async fn an_unknown_credential_is_not_a_challenge() {
        let engine = Engine::answering(answer("401 Unauthorized", "{}")).await;
        let actual = problem(&engine.ask().await);
        assert_eq!(actual, (502, "credential_unknown_to_engine".to_owned()));
    }

    #[tokio::test]
    async fn the_response_size_is_limited() {
        let most = "x".repeat(MAX_ANSWER);
        let engine = Engine::answering(answer("200 OK", &most)).await;
        assert_eq!(engine.ask().await.body().len(), MAX_ANSWER);
        let engine = Engine::answering(answer("200 OK", &format!("{most}x"))).await;
        let actual = problem(&engine.ask().await);
        assert_eq!(actual, (502, "answer_too_large".to_owned()));
    }

    /// The advice uses parameters of the requesting tool.
    #[test]
    fn advice_for_smaller_lists_uses_existing_parameters() {
        for (path, words) in [
            ("/api/tunnels", &["filters", "limit"][..]),
            ("/api/webtty/sessions", &["filters", "limit"]),
            ("/api/webtty/sessions/wts_1/events", &["from_seq", "limit"]),
            (
                "/api/webtty/sessions/wts_1/export",
                &["from_seq", "max_events"],
            ),
        ] {
            let actual = too_large(path);
            for word in ["filters", "limit", "from_seq", "max_events"] {
                assert_eq!(
                    actual.contains(word),
                    words.contains(&word),
                    "{path}: {actual}"
                );
            }
        }
    }

    #[tokio::test]
    async fn an_unreachable_or_untrusted_engine_is_a_response() {
        let engine = Engine::answering(answer("200 OK", "[]")).await;
        let unreachable = (502, "engine_unreachable".to_owned());
        // The system does not trust its CA.
        let system = EngineApi::new(TrustAnchors::System, Proxies::default()).unwrap();
        let actual = system.send_request(&engine.address, request()).await;
        assert_eq!(problem(&actual), unreachable);
        assert_eq!(*engine.heads.lock().unwrap(), Vec::<String>::new());
        // A bound port that does not listen.
        let bound = TcpSocket::new_v4().unwrap();
        bound.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let port = bound.local_addr().unwrap().port();
        let nobody = HostPort::new("abcd1234.engine.localhost", port).unwrap();
        let actual = system.send_request(&nobody, request()).await;
        assert_eq!(problem(&actual), unreachable);
    }

    #[test]
    fn a_file_without_a_certificate_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.pem");
        std::fs::write(&file, "none").unwrap();
        assert!(EngineApi::new(TrustAnchors::SystemAnd(&file), Proxies::default()).is_err());
        assert!(EngineApi::new(TrustAnchors::Only(&file), Proxies::default()).is_err());
    }
}
