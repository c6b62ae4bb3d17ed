use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};

/// Connects to one engine over TLS with a chosen protocol.
#[derive(Clone)]
pub(crate) struct Connector {
    roots: Arc<RootCertStore>,
    port: u16,
}

/// A blocking TLS connection to the engine.
pub(crate) type Connection = StreamOwned<ClientConnection, TcpStream>;

impl Connector {
    /// A connector that trusts the authority in `ca_file` and dials `port` on loopback.
    ///
    /// # Errors
    /// The file has no certificate.
    pub(crate) fn new(ca_file: &Path, port: u16) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca_file)? {
            roots.add(certificate?)?;
        }
        Ok(Self {
            roots: Arc::new(roots),
            port,
        })
    }

    /// A TCP connection without TLS.
    ///
    /// # Errors
    /// The engine does not accept it.
    pub(crate) fn tcp(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.set_write_timeout(Some(READ_TIMEOUT))?;
        Ok(stream)
    }

    /// A TLS connection for `name` with exactly one ALPN protocol, after its handshake.
    ///
    /// # Errors
    /// The engine refuses the connection or the handshake.
    pub(crate) fn tls(&self, name: &str, alpn: &[u8]) -> Result<Connection> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        let name = ServerName::try_from(name.to_owned())?;
        let client = ClientConnection::new(Arc::new(config), name)?;
        let mut connection = StreamOwned::new(client, self.tcp()?);
        connection.flush().context("the TLS handshake")?;
        while connection.conn.is_handshaking() {
            connection
                .conn
                .complete_io(&mut connection.sock)
                .context("the TLS handshake")?;
        }
        Ok(connection)
    }
}

/// Reads until the peer closes, the time-out passes, or `limit` bytes are there.
pub(crate) fn read_available(connection: &mut impl Read, limit: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = [0; 16 * 1024];
    while all.len() < limit {
        match connection.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) => all.extend_from_slice(buffer.get(..length).unwrap_or_default()),
        }
    }
    all
}

/// The engine answers or closes well before this, even on a busy machine. No case waits for it in a
/// successful run.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
