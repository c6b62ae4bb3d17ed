//! Dialling as a `tower` service (feature `tower`), for clients that accept a connector:
//! hyper-util's, tonic's `Endpoint::connect_with_connector`.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tower_service::Service;

use crate::{Config, ConnectError, Refusal, RefusalKind, Stream, dial};

/// Connects to private tunnels: the host of a URI is the name or the id of a tunnel.
///
/// The stream is the unmodified stream of the tunnel's service. Use `http://` URIs, because the
/// connection to the engine is already encrypted.
///
/// ```no_run
/// use http_body_util::Empty;
/// use hyper_util::{client::legacy::Client, rt::TokioExecutor};
/// use svc_client::{Config, TunnelConnector, api::Bytes};
///
/// # async fn get(config: Config) -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder(TokioExecutor::new())
///     .build::<_, Empty<Bytes>>(TunnelConnector::new(config));
/// let answer = client.get("http://billing/invoices".parse()?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TunnelConnector {
    config: Arc<Config>,
    tunnel: Option<Arc<str>>,
}

impl TunnelConnector {
    /// Creates a connector that dials the tunnel in the host of a URI.
    pub fn new(config: Config) -> Self {
        Self {
            config: Arc::new(config),
            tunnel: None,
        }
    }

    /// Creates a connector that always dials this tunnel: for services that expect their own name
    /// in requests.
    pub fn to(config: Config, name_or_id: &str) -> Self {
        Self {
            config: Arc::new(config),
            tunnel: Some(name_or_id.into()),
        }
    }
}

/// A connection that [`TunnelConnector`] returns. Dropping it closes the connection.
pub type DialFuture =
    Pin<Box<dyn Future<Output = Result<TokioIo<Stream>, ConnectError>> + Send + 'static>>;

impl Service<Uri> for TunnelConnector {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = DialFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let config = Arc::clone(&self.config);
        let named = || uri.host().map(Arc::from);
        let tunnel = self.tunnel.clone().or_else(named);
        Box::pin(async move {
            let Some(tunnel) = tunnel else {
                let unnamed = Refusal::new(RefusalKind::Invalid, "the URI has no host");
                return Err(unnamed.into());
            };
            dial(&config, &tunnel).await.map(TokioIo::new)
        })
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
