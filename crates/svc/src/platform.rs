//! Client of the platform's API, with paths and types from the crate `api`.
//!
//! Each call names an [`Operation`], so the command line can only send requests that the API
//! document contains.

mod address;
mod candidates;
mod error;
mod find;
mod oauth;
mod session;

pub(crate) use self::{
    address::ApiUrl,
    error::PlatformError,
    find::{is_endpoint, not_found},
    oauth::{AuthorizationServer, OauthFailure},
    session::{Session, SessionFlags, parse},
};

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use api::control::Operation;
use bytes::Bytes;
use client::{Proxies, Token, backoff::Backoff};
use reqwest::{Certificate, Client, Response, redirect};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use types::percent::escaped;

use crate::{failure::Failure, proxy};

/// A platform with a token.
#[derive(Debug)]
pub(crate) struct Platform {
    http: Client,
    address: ApiUrl,
    token: Token,
    ca_file: Option<PathBuf>,
    proxies: Proxies,
}

impl Platform {
    /// Creates the client. Does not connect yet. `ca_file` replaces the system's CA certificates.
    pub(crate) fn new(
        address: ApiUrl,
        token: Token,
        ca_file: Option<PathBuf>,
        proxies: Proxies,
    ) -> Result<Self, Failure> {
        let http = connection(&address, ca_file.as_deref(), &proxies)?;
        Ok(Self {
            http,
            address,
            token,
            ca_file,
            proxies,
        })
    }

    /// True for the same address, token and CA file.
    fn matches(&self, address: &ApiUrl, token: &Token, ca_file: Option<&Path>) -> bool {
        (&self.address, &self.token, self.ca_file.as_deref()) == (address, token, ca_file)
    }

    /// The address.
    pub(crate) fn address(&self) -> &ApiUrl {
        &self.address
    }

    /// The token.
    pub(crate) fn token(&self) -> &Token {
        &self.token
    }

    /// The file with CA certificates that replace the system's.
    pub(crate) fn ca_file(&self) -> Option<&Path> {
        self.ca_file.as_deref()
    }

    /// The proxies of connections to other machines.
    pub(crate) fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    /// The failure of a connection to the platform.
    fn unreachable(&self, source: reqwest::Error) -> PlatformError {
        PlatformError::unreachable(&self.address, &self.proxies, source)
    }

    /// Sends a request of another component to its path on this platform. A refusal of the platform
    /// is a normal response.
    pub(crate) async fn send_request(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<http::Response<Bytes>, PlatformError> {
        let (parts, body) = request.into_parts();
        let response = self
            .http
            .request(parts.method, format!("{}{}", self.address, parts.uri))
            .headers(parts.headers)
            .bearer_auth(self.token.expose())
            .body(body)
            .send()
            .await
            .map_err(|source| self.unreachable(source))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read(response).await.map_err(|error| match error {
            ReadError::Network(source) => self.unreachable(source),
            ReadError::TooLarge => PlatformError::Unexpected("it is too large".to_owned()),
        })?;
        let mut answer = http::Response::new(Bytes::from(body));
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        Ok(answer)
    }

    /// Starts a call of an operation. `ids` fill the placeholders of its path, in order.
    pub(crate) fn call(&self, operation: &'static Operation, ids: &[&str]) -> Call<'_> {
        Call {
            platform: self,
            operation,
            path: fill(operation.path, ids),
            query: Vec::new(),
            body: None,
            repeatable: false,
        }
    }
}

/// A call that is being built.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    platform: &'a Platform,
    operation: &'static Operation,
    path: String,
    query: Vec<(&'static str, String)>,
    body: Option<Value>,
    repeatable: bool,
}

impl Call<'_> {
    /// Adds a query parameter, if it has a value.
    #[must_use]
    pub(crate) fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.query.push((name, value.to_string()));
        }
        self
    }

    /// Sets the body.
    pub(crate) fn body(mut self, body: &impl Serialize) -> Result<Self, PlatformError> {
        let body = serde_json::to_value(body)
            .map_err(|error| PlatformError::Unexpected(error.to_string()))?;
        self.body = Some(body);
        Ok(self)
    }

    /// Marks the call as idempotent (with an idempotency key), so that it is retried after network
    /// failures.
    #[must_use]
    pub(crate) fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// Sends the call, and parses the response.
    pub(crate) async fn answer<T: DeserializeOwned>(self) -> Result<T, PlatformError> {
        let body = self.send().await?;
        serde_json::from_slice(&body)
            .map_err(|error| PlatformError::Unexpected(format!("unexpected content: {error}")))
    }

    /// Sends the call and ignores the response body.
    pub(crate) async fn execute(self) -> Result<(), PlatformError> {
        self.send().await.map(drop)
    }

    async fn send(self) -> Result<Vec<u8>, PlatformError> {
        let mut backoff = Backoff::default();
        let mut attempts = if self.repeatable { MAX_ATTEMPTS } else { 1_u32 };
        loop {
            attempts = attempts.saturating_sub(1);
            match self.attempt().await {
                Err(error) if attempts > 0 && error.is_transient() => {
                    tokio::time::sleep(backoff.next_wait(client::backoff::random())).await;
                }
                result => return result,
            }
        }
    }

    async fn attempt(&self) -> Result<Vec<u8>, PlatformError> {
        let platform = self.platform;
        let unreachable = |source| platform.unreachable(source);
        let url = format!("{}{}", platform.address, self.path);
        let mut request = platform
            .http
            .request(self.operation.method.into(), url)
            .bearer_auth(platform.token.expose())
            .query(&self.query);
        if let Some(body) = &self.body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let body = read(response).await.map_err(|error| match error {
            ReadError::Network(source) => unreachable(source),
            ReadError::TooLarge => PlatformError::Unexpected("it is too large".to_owned()),
        })?;
        if status.is_success() {
            Ok(body)
        } else {
            Err(PlatformError::from_response(status.as_u16(), &body))
        }
    }
}

/// The HTTP client for this platform. `ca_file` replaces the system's CA certificates.
fn connection(
    address: &ApiUrl,
    ca_file: Option<&Path>,
    proxies: &Proxies,
) -> Result<Client, Failure> {
    let builder = Client::builder()
        .user_agent(concat!("svc/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(CALL_TIMEOUT)
        // A token must only be sent to the named host.
        .redirect(redirect::Policy::none());
    let mut builder = proxy::apply(builder, proxies, &address.to_url()?)?;
    if address.is_localhost() {
        // RFC 6761 section 6.3: some resolvers do not map these names to this machine.
        let loopback = [
            SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
        ];
        builder = builder.resolve_to_addrs(address.host(), &loopback);
    }
    if let Some(path) = ca_file {
        builder = builder.tls_certs_only(
            read_ca_certificates(path).map_err(|failure| failure.hint("check --ca-file"))?,
        );
    }
    builder
        .build()
        .map_err(|error| Failure::from_error("cannot set up a connection", error))
}

enum ReadError {
    Network(reqwest::Error),
    TooLarge,
}

async fn read(mut response: Response) -> Result<Vec<u8>, ReadError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(ReadError::Network)? {
        if body.len() + chunk.len() > MAX_BODY {
            return Err(ReadError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Reads the certificates of a PEM file. A file without certificates is an error.
pub(crate) fn read_ca_certificates(path: &Path) -> Result<Vec<Certificate>, Failure> {
    let shown = path.display();
    let pem = std::fs::read(path)
        .map_err(|error| Failure::usage(format!("cannot read the CA file {shown}: {error}")))?;
    let certificates = Certificate::from_pem_bundle(&pem).unwrap_or_default();
    if certificates.is_empty() {
        let message = format!("the CA file {shown} holds no certificate in PEM form");
        return Err(Failure::usage(message));
    }
    Ok(certificates)
}

/// Fills ids into the placeholders of a path, percent-encoded (RFC 3986 section 2.3).
fn fill(template: &str, ids: &[&str]) -> String {
    let mut ids = ids.iter();
    let mut path = String::with_capacity(template.len());
    for segment in template.split('/').skip(1) {
        path.push('/');
        if !segment.starts_with('{') {
            path.push_str(segment);
            continue;
        }
        let id = escaped(ids.next().copied().unwrap_or_default()).to_string();
        // A segment of dots only would change the path.
        path.push_str(&id.replace('.', "%2E"));
    }
    path
}

/// Time limit of connecting: two round trips and a busy machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a complete call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of a response body in bytes. A page of a list has at most a hundred items.
const MAX_BODY: usize = 16 * 1024 * 1024;
/// Attempts of a repeatable call. Their total time covers a restart of the platform.
const MAX_ATTEMPTS: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_cannot_escape_their_path_segment() {
        assert_eq!(
            fill("/api/a/{x}/b/{y}", &["prj_1", "../é"]),
            "/api/a/prj_1/b/%2E%2E%2F%C3%A9"
        );
    }
}
