//! Addresses of servers, and connecting to them.

use std::io;
use std::time::Duration;

use client::{Config, ConnectError, HostPort, Proxies, Token, Trust};
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, Uri};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use transport::Socket;
use types::webtty::Transport;

use super::connection::{Connection, ConnectionError};

/// A terminal server, with the parameters of a connection to it. It can be connected to repeatedly.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A server with a listener, or a published tunnel.
    Url {
        /// Its address.
        url: Url,
        /// Token for the server.
        bearer: Option<Token>,
        /// Trusted certificates for `wss`.
        trust: Trust,
        /// Proxies on the way to it.
        proxies: Proxies,
    },
    /// A server behind a private tunnel, which the engine opens a stream to.
    Private {
        /// The engine, and the client's credentials.
        config: Box<Config>,
        /// The tunnel, by name or id.
        tunnel: String,
        /// Encoding of the messages on the stream.
        transport: Transport,
        /// Path of the WebSocket; unused with [`Transport::Plain`].
        path: String,
    },
}

/// `ws://host:port/path` or `wss://…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Over TLS.
    pub is_secure: bool,
    /// The host and the port.
    pub address: HostPort,
    /// The path with its query; it begins with `/`.
    pub path: String,
}

/// The text is not an address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address of a terminal server must be ws://host:port or wss://host")]
pub struct UrlError;

impl Endpoint {
    /// A server at a URL, without a proxy.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn url(url: &str, bearer: Option<Token>, trust: Trust) -> Result<Self, UrlError> {
        Ok(Self::Url {
            url: Url::parse(url)?,
            bearer,
            trust,
            proxies: Proxies::default(),
        })
    }

    /// Sets the proxies of a server at a URL. A private tunnel uses the proxies of its
    /// configuration.
    #[must_use]
    pub fn with_proxies(mut self, new: Proxies) -> Self {
        if let Self::Url { proxies, .. } = &mut self {
            *proxies = new;
        }
        self
    }

    /// Connects once, including the upgrade if the messages are in a WebSocket.
    ///
    /// # Errors
    /// The server is unreachable, or refuses. Each step has its own time limit.
    pub async fn connect(&self) -> Result<Connection, ConnectionError> {
        match self {
            Self::Url { url, bearer, .. } => {
                let request = upgrade_request(&url.to_string(), bearer.as_ref())?;
                Connection::websocket(self.open().await?, request).await
            }
            Self::Private {
                transport: Transport::Plain,
                ..
            } => Ok(Connection::plain(self.open().await?)),
            Self::Private { path, .. } => {
                // The host is a placeholder: the server is already connected.
                let request = upgrade_request(&format!("ws://localhost{path}"), None)?;
                Connection::websocket(self.open().await?, request).await
            }
        }
    }

    /// A byte stream to the server, for requests other than WebTTY.
    ///
    /// # Errors
    /// The server is unreachable. Each step has its own time limit.
    pub async fn open(&self) -> Result<Box<dyn transport::Stream>, ConnectionError> {
        match self {
            Self::Url {
                url,
                trust,
                proxies,
                ..
            } => url.open_stream(trust, proxies).await,
            Self::Private { config, tunnel, .. } => {
                Ok(Box::new(client::dial(config, tunnel).await?))
            }
        }
    }
}

impl Url {
    /// Parses an address.
    ///
    /// # Errors
    /// [`UrlError`], also for an address with a fragment or a password.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.contains(['#', '@']) {
            return Err(UrlError);
        }
        let uri: Uri = text.parse().map_err(|_invalid| UrlError)?;
        let is_secure = match uri.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            _ => return Err(UrlError),
        };
        let default_port = if is_secure { 443 } else { 80 };
        let authority = uri.authority().ok_or(UrlError)?;
        let host = authority.host();
        let port = match authority.as_str().strip_prefix(host) {
            Some("") => default_port,
            Some(port) => match port.strip_prefix(':').unwrap_or_default().parse() {
                Ok(0) | Err(_) => return Err(UrlError),
                Ok(port) => port,
            },
            None => return Err(UrlError),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let address = HostPort::new(host, port).map_err(|_invalid| UrlError)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        };
        Ok(Self {
            is_secure,
            address,
            path,
        })
    }

    /// Adds a parameter to the query, unless it already has one with this name.
    #[must_use]
    pub fn with_parameter(mut self, name: &str, value: &str) -> Self {
        let query = self.path.split_once('?').map(|(_, query)| query);
        let is_present = query.is_some_and(|query| {
            let mut names = query.split('&').map(|pair| pair.split('=').next());
            names.any(|known| known == Some(name))
        });
        if !is_present {
            let separator = if query.is_some() { '&' } else { '?' };
            self.path = format!("{}{separator}{name}={value}", self.path);
        }
        self
    }

    /// Connects the socket, and adds TLS for `wss`.
    async fn open_stream(
        &self,
        trust: &Trust,
        proxies: &Proxies,
    ) -> Result<Box<dyn transport::Stream>, ConnectionError> {
        let socket = self.open_socket(proxies).await?;
        if !self.is_secure {
            return Ok(Box::new(socket));
        }
        let tls = trust
            .client_config(&[b"http/1.1"])
            .map_err(ConnectError::from)?;
        let name = self.address.server_name().map_err(ConnectError::from)?;
        let handshake = with_time_limit(HANDSHAKE_TIMEOUT, transport::connect(tls, name, socket));
        Ok(Box::new(
            handshake.await.map_err(|source| self.unreachable(source))?,
        ))
    }

    async fn open_socket(&self, proxies: &Proxies) -> Result<Socket, ConnectionError> {
        let opened = client::open_socket(&self.address, proxies, self.is_secure).await;
        opened.map_err(|error| match error {
            ConnectError::Network { source, .. } => {
                self.unreachable(io::Error::new(source.kind(), source))
            }
            ConnectError::TimedOut(_) => self.unreachable(io::ErrorKind::TimedOut.into()),
            error => error.into(),
        })
    }

    fn unreachable(&self, source: io::Error) -> ConnectionError {
        ConnectionError::Unreachable {
            address: self.address.to_string(),
            source,
        }
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (scheme, default_port) = if self.is_secure {
            ("wss", 443)
        } else {
            ("ws", 80)
        };
        let authority = self.address.to_string();
        let authority = authority
            .strip_suffix(&format!(":{default_port}"))
            .unwrap_or(&authority);
        write!(f, "{scheme}://{authority}{}", self.path)
    }
}

fn upgrade_request(url: &str, bearer: Option<&Token>) -> Result<Request<()>, ConnectionError> {
    let protocol_error = |message: &str| ConnectionError::Protocol(message.to_owned());
    let mut request = url
        .into_client_request()
        .map_err(|_invalid| protocol_error("cannot send a request to the address"))?;
    let headers = request.headers_mut();
    if let Some(token) = bearer {
        // A token from a wrong file can contain control characters, which a header does not allow.
        let bearer = HeaderValue::try_from(format!("Bearer {}", token.expose()))
            .map_err(|_invalid| protocol_error("the token cannot be sent"))?;
        headers.insert(AUTHORIZATION, bearer);
    }
    let agent = concat!("svc/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    Ok(request)
}

async fn with_time_limit<T>(
    limit: Duration,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match timeout(limit, work).await {
        Ok(result) => result,
        Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Time for a TLS handshake: two round trips over the worst usable link.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
