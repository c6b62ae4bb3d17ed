//! Where a server is, and how it is reached.

use std::io;
use std::time::Duration;

use client::{Config, HostPort, Token, Trust};
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, Uri};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use transport::Socket;
use types::webtty::Transport;

use super::connection::{Connection, ConnectionError};

/// A server, as it is reached each time.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// One that listens, or a tunnel that is published.
    Url {
        /// Its address.
        url: Url,
        /// What is shown to it.
        bearer: Option<Token>,
        /// Whose certificates are believed, with `wss`.
        trust: Trust,
    },
    /// A private tunnel, dialled through its engine.
    Private {
        /// The engine, and who dials.
        config: Box<Config>,
        /// The tunnel, by name or id.
        tunnel: String,
        /// What the server speaks on the stream.
        transport: Transport,
        /// The path of a WebSocket.
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
    /// The path with its query; begins with `/`.
    pub path: String,
}

/// The text is no address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a ws://host:port or wss://host")]
pub struct BadUrl;

impl Endpoint {
    /// A server at a URL.
    ///
    /// # Errors
    /// [`BadUrl`].
    pub fn url(url: &str, bearer: Option<Token>, trust: Trust) -> Result<Self, BadUrl> {
        Ok(Self::Url {
            url: Url::parse(url)?,
            bearer,
            trust,
        })
    }

    /// Connects once.
    ///
    /// # Errors
    /// Nobody is there, or they refuse. Each step has its own bound.
    pub async fn connect(&self) -> Result<Connection, ConnectionError> {
        match self {
            Self::Url { url, bearer, .. } => {
                let request = request(&url.to_string(), bearer.as_ref())?;
                Connection::websocket(self.open().await?, request).await
            }
            Self::Private {
                transport: Transport::Plain,
                ..
            } => Ok(Connection::plain(self.open().await?)),
            Self::Private { path, .. } => {
                // The name is for the server's eyes, and no name of a host.
                let request = request(&format!("ws://localhost{path}"), None)?;
                Connection::websocket(self.open().await?, request).await
            }
        }
    }

    /// A byte stream to the server, for what is asked beside WebTTY.
    ///
    /// # Errors
    /// Nobody is there. Each step has its own bound.
    pub async fn open(&self) -> Result<Box<dyn transport::Stream>, ConnectionError> {
        match self {
            Self::Url { url, trust, .. } => url.open(trust).await,
            Self::Private { config, tunnel, .. } => {
                Ok(Box::new(client::dial(config, tunnel).await?))
            }
        }
    }
}

impl Url {
    /// Reads an address.
    ///
    /// # Errors
    /// [`BadUrl`], also for one with a fragment or a password.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        if text.contains(['#', '@']) {
            return Err(BadUrl);
        }
        let uri: Uri = text.parse().map_err(|_invalid| BadUrl)?;
        let is_secure = match uri.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            _ => return Err(BadUrl),
        };
        let usual = if is_secure { 443 } else { 80 };
        let authority = uri.authority().ok_or(BadUrl)?;
        let host = authority.host();
        let port = match authority.as_str().strip_prefix(host) {
            Some("") => usual,
            Some(port) => match port.strip_prefix(':').unwrap_or_default().parse() {
                Ok(0) | Err(_) => return Err(BadUrl),
                Ok(port) => port,
            },
            None => return Err(BadUrl),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let address = HostPort::new(host, port).map_err(|_invalid| BadUrl)?;
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

    /// The same with one more parameter in its query, unless it has one of this name.
    #[must_use]
    pub fn with_parameter(mut self, name: &str, value: &str) -> Self {
        let query = self.path.split_once('?').map(|(_, query)| query);
        let has = query.is_some_and(|query| {
            let mut names = query.split('&').map(|pair| pair.split('=').next());
            names.any(|known| known == Some(name))
        });
        if !has {
            let joint = if query.is_some() { '&' } else { '?' };
            self.path = format!("{}{joint}{name}={value}", self.path);
        }
        self
    }

    async fn open(&self, trust: &Trust) -> Result<Box<dyn transport::Stream>, ConnectionError> {
        let failed = |source| ConnectionError::Unreachable {
            address: self.address.to_string(),
            source,
        };
        let addresses = bounded(RESOLVE, self.address.resolve())
            .await
            .map_err(failed)?;
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            match bounded(DIAL, TcpStream::connect(address)).await {
                Ok(stream) => {
                    // A key must not wait for an acknowledgement; without it, it is late, not wrong.
                    drop(stream.set_nodelay(true));
                    if !self.is_secure {
                        return Ok(Box::new(stream));
                    }
                    let tls = trust
                        .client_config(&[b"http/1.1"])
                        .map_err(client::ConnectError::from)?;
                    let name = self
                        .address
                        .server_name()
                        .map_err(client::ConnectError::from)?;
                    let socket = Socket::new(stream, address);
                    let shaken = bounded(HANDSHAKE, transport::connect(tls, name, socket));
                    return Ok(Box::new(shaken.await.map_err(failed)?));
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (scheme, usual) = if self.is_secure {
            ("wss", 443)
        } else {
            ("ws", 80)
        };
        let authority = self.address.to_string();
        let authority = authority
            .strip_suffix(&format!(":{usual}"))
            .unwrap_or(&authority);
        write!(f, "{scheme}://{authority}{}", self.path)
    }
}

fn request(url: &str, bearer: Option<&Token>) -> Result<Request<()>, ConnectionError> {
    let bad = |what: &str| ConnectionError::Protocol(what.to_owned());
    let mut request = url
        .into_client_request()
        .map_err(|_invalid| bad("the address cannot be asked for"))?;
    let headers = request.headers_mut();
    if let Some(token) = bearer {
        // A token with control characters in it, from a file that holds something else.
        let bearer = HeaderValue::try_from(format!("Bearer {}", token.expose()))
            .map_err(|_invalid| bad("the token cannot be sent"))?;
        headers.insert(AUTHORIZATION, bearer);
    }
    let agent = concat!("svc/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    Ok(request)
}

async fn bounded<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(limit, work).await {
        Ok(done) => done,
        Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// As long as a resolver tries two servers.
const RESOLVE: Duration = Duration::from_secs(10);

/// Three SYNs (at 0, 1 and 3 seconds) and the answer to the last; then the next address.
const DIAL: Duration = Duration::from_secs(5);

/// Two round trips over the worst link that is still of use.
const HANDSHAKE: Duration = Duration::from_secs(10);
