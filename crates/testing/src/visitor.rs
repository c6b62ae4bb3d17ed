//! Clients of an edge.

mod answer;
mod h2;
mod raw;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub use answer::ReceivedResponse;
pub use h2::{H2Body, H2Visitor};
pub use raw::{RawVisitor, Stream};

use crate::TestCa;

/// A client that can connect to an edge and trusts its certificate.
pub struct Visitor {
    edge: SocketAddr,
    source: Option<Ipv4Addr>,
    http1: Arc<ClientConfig>,
    h2: Arc<ClientConfig>,
}

impl Visitor {
    /// Creates a visitor of the edge at address `edge` with a certificate of `ca`.
    pub fn new(edge: SocketAddr, ca: &TestCa) -> Self {
        Self {
            edge,
            source: None,
            http1: ca.client(&["http/1.1"]),
            h2: ca.client(&["h2"]),
        }
    }

    /// The same visitor with another source address on the loopback network.
    #[must_use]
    pub fn from(self, source: Ipv4Addr) -> Self {
        Self {
            source: Some(source),
            ..self
        }
    }

    /// Connects to `host` with ALPN `http/1.1`, to send arbitrary bytes.
    pub async fn http1(&self, host: &str) -> RawVisitor {
        RawVisitor::new(self.connect(host, &self.http1).await)
    }

    /// Connects to `host` with ALPN `h2`.
    pub async fn h2(&self, host: &str) -> H2Visitor {
        H2Visitor::over(self.connect(host, &self.h2).await).await
    }

    /// Connects to `host` without HTTP, with the ALPN names of `config`.
    pub async fn connect(&self, host: &str, config: &Arc<ClientConfig>) -> TlsStream<TcpStream> {
        let connected = self.try_connect(host, config).await;
        connected.expect("a TLS session")
    }

    /// As [`Self::connect`]; `None` if the edge refuses the handshake.
    pub async fn try_connect(
        &self,
        host: &str,
        config: &Arc<ClientConfig>,
    ) -> Option<TlsStream<TcpStream>> {
        let socket = TcpSocket::new_v4().expect("a socket");
        if let Some(source) = self.source {
            let source = SocketAddr::from((source, 0));
            socket.bind(source).expect("an address of this machine");
        }
        let stream = socket.connect(self.edge).await.expect("the edge listens");
        stream.set_nodelay(true).expect("a socket option");
        let name = ServerName::try_from(host.to_owned()).expect("a host name");
        let connector = TlsConnector::from(Arc::clone(config));
        connector.connect(name, stream).await.ok()
    }
}
