//! TLS configurations, made once and shared.

use std::sync::Arc;

use daemon::tls::ReloadingCert;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};
use types::tunnel::{PropertyError, TlsVersion, TunnelProperties};
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
        let make = |versions, alpn: &[&[u8]]| {
            config(
                &certificate,
                &tickets,
                daemon::tls::provider(),
                versions,
                alpn,
            )
        };
        Ok(Self {
            base: make(BOTH, &[ALPN_SVC, ALPN_RSTRM, H2, HTTP1, HTTP10])?,
            http: make(BOTH, &[H2, HTTP1, HTTP10])?,
            http_modern: make(MODERN, &[H2, HTTP1, HTTP10])?,
            certificate,
            tickets,
        })
    }

    /// For a published HTTP tunnel, or a name without one.
    ///
    /// # Errors
    /// As [`TlsConfigs::new`].
    pub(super) fn http(
        &self,
        tunnel: Option<&TunnelProperties>,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        match tunnel {
            Some(tunnel) if !tunnel.tls_ciphers.is_empty() => {
                self.own(tunnel, &[H2, HTTP1, HTTP10])
            }
            Some(tunnel) if tunnel.tls_min_version == Some(TlsVersion::Tls13) => {
                Ok(Arc::clone(&self.http_modern))
            }
            Some(_) | None => Ok(Arc::clone(&self.http)),
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
        let alpn: Vec<&[u8]> = tunnel.tls_alpns.iter().map(String::as_bytes).collect();
        self.own(tunnel, &alpn)
    }

    fn own(
        &self,
        tunnel: &TunnelProperties,
        alpn: &[&[u8]],
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        // Judged when the tunnel was opened.
        let provider = provider(tunnel).map_err(|error| rustls::Error::General(error.message))?;
        let (certificate, tickets) = (&self.certificate, &self.tickets);
        config(certificate, tickets, provider, versions(tunnel), alpn)
    }
}

/// Judges `tls_ciphers`: what is asked for is kept, or refused.
///
/// # Errors
/// A suite that this engine does not have, or none that goes with `tls_min_version`.
pub(crate) fn check_ciphers(tunnel: &TunnelProperties) -> Result<(), PropertyError> {
    provider(tunnel).map(drop)
}

fn versions(tunnel: &TunnelProperties) -> &'static [&'static SupportedProtocolVersion] {
    match tunnel.tls_min_version {
        Some(TlsVersion::Tls13) => MODERN,
        Some(TlsVersion::Tls12) | None => BOTH,
    }
}

/// The cryptography of a tunnel: the engine's, with the suites that its owner allows, in the
/// engine's order.
fn provider(tunnel: &TunnelProperties) -> Result<Arc<CryptoProvider>, PropertyError> {
    let ours = daemon::tls::provider();
    if tunnel.tls_ciphers.is_empty() {
        return Ok(ours);
    }
    let is = |name: &String, suite: &SupportedCipherSuite| {
        let library = suite.suite().as_str().unwrap_or_default();
        // The library marks the version in the name; the registry (IANA) does not.
        match library.strip_prefix("TLS13_") {
            Some(rest) => name.strip_prefix("TLS_") == Some(rest),
            None => name == library,
        }
    };
    let unknown = tunnel
        .tls_ciphers
        .iter()
        .position(|name| !ours.cipher_suites.iter().any(|suite| is(name, suite)));
    if let Some(place) = unknown {
        let message = "not a cipher suite of this engine; names are those of the IANA registry";
        return Err(PropertyError::new(format!("tls_ciphers.{place}"), message));
    }
    let allowed = |suite: &SupportedCipherSuite| {
        versions(tunnel).contains(&suite.version())
            && tunnel.tls_ciphers.iter().any(|name| is(name, suite))
    };
    let mut own = CryptoProvider::clone(&ours);
    own.cipher_suites.retain(allowed);
    if own.cipher_suites.is_empty() {
        let message = "no suite of the version that tls_min_version asks for";
        return Err(PropertyError::new("tls_ciphers", message));
    }
    Ok(Arc::new(own))
}

const BOTH: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
const MODERN: &[&SupportedProtocolVersion] = &[&version::TLS13];

fn config(
    certificate: &Arc<ReloadingCert>,
    tickets: &Arc<dyn ProducesTickets>,
    provider: Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    alpn: &[&[u8]],
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let certificate = Arc::clone(certificate);
    let mut config = ServerConfig::builder_with_provider(provider)
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
