//! Handshakes of clients, and of an authority that validates a name.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::Acceptor as HelloReader;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use crate::challenges::Challenges;

/// Accepts TLS connections. Clones share the configuration.
#[derive(Clone)]
pub struct Acceptor {
    clients: TlsAcceptor,
    challenges: Option<Arc<Challenges>>,
}

impl Acceptor {
    /// Creates it from the configuration for clients, and from the answers to an authority.
    pub fn new(clients: Arc<ServerConfig>, challenges: Option<Arc<Challenges>>) -> Self {
        Self {
            clients: TlsAcceptor::from(clients),
            challenges,
        }
    }

    /// Completes the handshake. `None` if it was the validation of an authority, whose answer is
    /// the handshake: the connection has no further use.
    ///
    /// # Errors
    /// The handshake fails.
    pub async fn accept<S>(&self, stream: S) -> io::Result<Option<TlsStream<S>>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        // While no order is pending, a handshake costs one more load.
        let pending = self.challenges.as_ref();
        let Some(challenges) = pending.filter(|challenges| challenges.is_pending()) else {
            return self.clients.accept(stream).await.map(Some);
        };
        let start = LazyConfigAcceptor::new(HelloReader::default(), stream).await?;
        let config = challenges.handshake_config(&start.client_hello());
        if let Some(config) = config {
            start.into_stream(config).await?;
            return Ok(None);
        }
        let config = Arc::clone(self.clients.config());
        start.into_stream(config).await.map(Some)
    }
}
