//! TLS configurations, made once and shared.

use std::sync::Arc;

use daemon::tls::ReloadingCert;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::{ServerConfig, SupportedProtocolVersion, version};
use types::tunnel::{TlsVersion, TunnelProperties};
use wire::handshake::{ALPN_RSTRM, ALPN_SVC};

const H2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";
/// What curl offers when it is told to speak HTTP/1.0, and nothing else.
const HTTP10: &[u8] = b"http/1.0";

/// The configurations of the TLS listener.
#[derive(Debug)]
pub(crate) struct TlsConfigs {
    certificate: Arc<ReloadingCert>,
    tickets: Arc<dyn ProducesTickets>,
    /// The base host: agents and the Engine API.
    pub(super) base: Arc<ServerConfig>,
    /// Published HTTP tunnels.
    http: Arc<ServerConfig>,
    /// The same for tunnels that ask for TLS 1.3.
    http_modern: Arc<ServerConfig>,
}

impl TlsConfigs {
    /// # Errors
    /// When the cryptography library refuses the versions or has no randomness for tickets.
    pub(crate) fn new(certificate: Arc<ReloadingCert>) -> Result<Self, rustls::Error> {
        let tickets = rustls::crypto::aws_lc_rs::Ticketer::new()?;
        let make = |versions, alpn: &[&[u8]]| config(&certificate, &tickets, versions, alpn);
        Ok(Self {
            base: make(BOTH, &[ALPN_SVC, ALPN_RSTRM, H2, HTTP1, HTTP10])?,
            http: make(BOTH, &[H2, HTTP1, HTTP10])?,
            http_modern: make(MODERN, &[H2, HTTP1, HTTP10])?,
            certificate,
            tickets,
        })
    }

    /// For a published HTTP tunnel, or a name without one.
    pub(super) fn http(&self, tunnel: Option<&TunnelProperties>) -> &Arc<ServerConfig> {
        match tunnel.and_then(|tunnel| tunnel.tls_min_version) {
            Some(TlsVersion::Tls13) => &self.http_modern,
            Some(TlsVersion::Tls12) | None => &self.http,
        }
    }

    /// For a terminated `tls` tunnel with ALPN names and a version of its own.
    ///
    /// # Errors
    /// As [`TlsConfigs::new`].
    pub(super) fn terminated(
        &self,
        tunnel: &TunnelProperties,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let versions = match tunnel.tls_min_version {
            Some(TlsVersion::Tls13) => MODERN,
            Some(TlsVersion::Tls12) | None => BOTH,
        };
        let alpn: Vec<&[u8]> = tunnel.tls_alpns.iter().map(String::as_bytes).collect();
        config(&self.certificate, &self.tickets, versions, &alpn)
    }
}

const BOTH: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
const MODERN: &[&SupportedProtocolVersion] = &[&version::TLS13];

fn config(
    certificate: &Arc<ReloadingCert>,
    tickets: &Arc<dyn ProducesTickets>,
    versions: &[&'static SupportedProtocolVersion],
    alpn: &[&[u8]],
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let certificate = Arc::clone(certificate);
    let mut config = ServerConfig::builder_with_provider(daemon::tls::provider())
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    // Our order of cipher suites counts: it has the one that costs least first.
    config.ignore_client_order = true;
    // Sessions are resumed from what the client keeps, so they cost the engine no memory. A
    // ticket is bound to its server name by the library.
    config.ticketer = Arc::clone(tickets);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}
