//! HTTP clients for the engines of each cluster.

use std::collections::HashMap;
use std::error::Error as _;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Method, RequestBuilder, Response, redirect};
use tokio::net::lookup_host;

use crate::config::{Config, is_loopback};
use crate::runtime::authorities;

/// The clients, by domain of the cluster.
#[derive(Debug, Default)]
pub(super) struct EngineClients {
    by_domain: HashMap<String, EngineClient>,
    /// Used for a region whose cluster is not in the configuration.
    other: EngineClient,
}

/// The client for the engines of one cluster.
#[derive(Debug, Default)]
pub(super) struct EngineClient {
    pooled: Client,
    /// Opens a connection for each request.
    unpooled: Client,
}

/// The HTTP client for the engines of a cluster cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("check `ca_file` of the configuration's engines: {0}")]
pub struct EngineClientError(String);

impl EngineClients {
    pub(super) fn open(config: &Config) -> Result<Self, EngineClientError> {
        let mut by_domain = HashMap::new();
        for engine in &config.engines {
            let made = EngineClient::open(engine.ca_file.as_deref())?;
            by_domain.insert(engine.cluster_domain.clone(), made);
        }
        Ok(Self {
            by_domain,
            other: EngineClient::open(None)?,
        })
    }

    /// The client for the engines of a cluster.
    pub(super) fn of_cluster(&self, domain: &str) -> &EngineClient {
        self.by_domain.get(domain).unwrap_or(&self.other)
    }
}

impl EngineClient {
    fn open(ca_file: Option<&Path>) -> Result<Self, EngineClientError> {
        Ok(Self {
            pooled: client(ca_file, MAX_IDLE_CONNECTIONS).map_err(EngineClientError)?,
            unpooled: client(ca_file, 0).map_err(EngineClientError)?,
        })
    }

    /// A request that [`Self::send`] sends.
    pub(super) fn request(&self, method: Method, address: String) -> RequestBuilder {
        self.pooled.request(method, address)
    }

    /// Sends a request. An engine may close an idle connection at the moment at which a request is
    /// sent on it. The HTTP library repeats a request only if nothing of it was sent, so a request
    /// without effects is repeated here, once and on a new connection.
    ///
    /// # Errors
    /// The engine was not reached, or its response did not arrive in time.
    pub(super) async fn send(&self, request: RequestBuilder) -> reqwest::Result<Response> {
        let request = request.build()?;
        let is_safe = request.method().is_safe();
        let again = is_safe.then(|| request.try_clone()).flatten();
        match (self.pooled.execute(request).await, again) {
            (Err(error), Some(again)) if is_closed(&error) => self.unpooled.execute(again).await,
            (answered, _) => answered,
        }
    }
}

/// True if an open connection was closed before the response.
fn is_closed(error: &reqwest::Error) -> bool {
    if error.is_connect() || error.is_timeout() {
        return false;
    }
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<hyper::Error>()
            && (error.is_incomplete_message() || error.is_canceled() || error.is_closed())
        {
            return true;
        }
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return matches!(
                error.kind(),
                // The last one is the end of a connection without the end of its TLS session.
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::UnexpectedEof
            );
        }
        source = cause.source();
    }
    false
}

fn client(ca_file: Option<&Path>, max_idle: usize) -> Result<Client, String> {
    let mut builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .pool_max_idle_per_host(max_idle)
        .dns_resolver(LoopbackNames)
        // The process takes its settings from the configuration only, not from the environment.
        .no_proxy()
        // A connection over HTTP/2 has a limited number of streams, and further ones would wait.
        .http1_only()
        .https_only(true)
        // A token must only be sent to the intended engine.
        .redirect(redirect::Policy::none());
    if let Some(path) = ca_file {
        builder = builder.tls_certs_merge(authorities::read(path)?);
    }
    builder.build().map_err(|error| error.to_string())
}

/// Resolves names like agents do: names under `localhost` are this machine.
struct LoopbackNames;

impl Resolve for LoopbackNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = if is_loopback(name.as_str()) {
                vec![
                    SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                    SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
                ]
            } else {
                // The port of the address takes precedence.
                lookup_host((name.as_str(), 0)).await?.collect()
            };
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

/// Time limit for a connection. A user waits for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of silence. Engines send a keep-alive every 15 s on a stream.
const READ_TIMEOUT: Duration = Duration::from_secs(45);
/// Idle connections to one project that are kept for the next list.
const MAX_IDLE_CONNECTIONS: usize = 4;
