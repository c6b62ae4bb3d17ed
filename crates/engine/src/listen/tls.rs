//! TLS configurations, made once and shared.

use std::sync::Arc;

use daemon::tls::ReloadingCert;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};
use types::tunnel::{PropertyError, TlsVersion, TunnelProperties};
use wire::handshake::{ALPN_RSTRM, ALPN_SVC};

use super::client_auth::ClientCertRequest;
use crate::live::LiveTunnel;

const H2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";
/// What curl offers when it is told to speak HTTP/1.0, and nothing else.
const HTTP10: &[u8] = b"http/1.0";
const HTTP: &[&[u8]] = &[H2, HTTP1, HTTP10];

/// The configurations of the TLS listener.
#[derive(Debug)]
pub(crate) struct TlsConfigs {
    certificate: Arc<ReloadingCert>,
    tickets: Arc<dyn ProducesTickets>,
    /// The base host: agents and the Engine API.
    pub(super) base: Arc<ServerConfig>,
    /// Published HTTP tunnels, and names without one.
    http: SharedConfigs,
    /// The same for those that ask for TLS 1.3.
    http_modern: SharedConfigs,
}

/// One for each way of asking for a client certificate.
#[derive(Debug)]
struct SharedConfigs {
    never: Arc<ServerConfig>,
    optionally: Arc<ServerConfig>,
    always: Arc<ServerConfig>,
}

/// What a tunnel and its project ask of a handshake now.
#[derive(Debug)]
pub(super) struct TlsPolicy<'a> {
    properties: &'a TunnelProperties,
    min_version: Option<TlsVersion>,
    pub(super) asks: ClientCertRequest,
}

impl<'a> TlsPolicy<'a> {
    /// Of the two versions the newer one holds (ED-8): what the project says is in force for the
    /// next handshake.
    pub(super) fn of<A>(tunnel: &'a LiveTunnel<A>) -> Self {
        let properties = &tunnel.view.properties;
        let project = tunnel.project.state().policy.min_tls;
        let modern = [properties.tls_min_version, project].contains(&Some(TlsVersion::Tls13));
        Self {
            properties,
            min_version: modern.then_some(TlsVersion::Tls13),
            asks: ClientCertRequest::of(tunnel.policy.required_proofs()),
        }
    }
}

impl TlsConfigs {
    /// # Errors
    /// When the cryptography library refuses the versions or has no randomness for tickets.
    pub(crate) fn new(certificate: Arc<ReloadingCert>) -> Result<Self, rustls::Error> {
        let tickets = rustls::crypto::aws_lc_rs::Ticketer::new()?;
        let make = |versions, asks, alpn: &[&[u8]]| {
            let provider = daemon::tls::provider();
            config(&certificate, &tickets, provider, versions, asks, alpn)
        };
        let common = |versions| {
            Ok::<_, rustls::Error>(SharedConfigs {
                never: make(versions, ClientCertRequest::Never, HTTP)?,
                optionally: make(versions, ClientCertRequest::Optionally, HTTP)?,
                always: make(versions, ClientCertRequest::Always, HTTP)?,
            })
        };
        Ok(Self {
            base: make(
                BOTH,
                ClientCertRequest::Never,
                &[ALPN_SVC, ALPN_RSTRM, H2, HTTP1, HTTP10],
            )?,
            http: common(BOTH)?,
            http_modern: common(MODERN)?,
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
        tunnel: Option<&TlsPolicy<'_>>,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let Some(terms) = tunnel else {
            return Ok(Arc::clone(&self.http.never));
        };
        if !terms.properties.tls_ciphers.is_empty() {
            return self.own(terms, HTTP);
        }
        let common = match terms.min_version {
            Some(TlsVersion::Tls13) => &self.http_modern,
            Some(TlsVersion::Tls12) | None => &self.http,
        };
        Ok(Arc::clone(match terms.asks {
            ClientCertRequest::Never => &common.never,
            ClientCertRequest::Optionally => &common.optionally,
            ClientCertRequest::Always => &common.always,
        }))
    }

    /// For a terminated `tls` tunnel with ALPN names and a version of its own.
    ///
    /// # Errors
    /// As [`TlsConfigs::new`].
    pub(super) fn terminated(
        &self,
        terms: &TlsPolicy<'_>,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let alpns = terms.properties.tls_alpns.iter();
        let alpns: Vec<&[u8]> = alpns.map(String::as_bytes).collect();
        self.own(terms, &alpns)
    }

    fn own(
        &self,
        terms: &TlsPolicy<'_>,
        alpn: &[&[u8]],
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        // Judged when the tunnel was opened; that its project asks for another version since then
        // is an error here.
        let provider =
            provider(terms.properties).map_err(|error| rustls::Error::General(error.message))?;
        let (certificate, tickets) = (&self.certificate, &self.tickets);
        let versions = versions(terms.min_version);
        config(certificate, tickets, provider, versions, terms.asks, alpn)
    }
}

/// Judges `tls_ciphers`: what is asked for is kept, or refused.
///
/// # Errors
/// A suite that this engine does not have, or none that goes with `tls_min_version`.
pub(crate) fn check_ciphers(tunnel: &TunnelProperties) -> Result<(), PropertyError> {
    provider(tunnel).map(drop)
}

fn versions(min: Option<TlsVersion>) -> &'static [&'static SupportedProtocolVersion] {
    match min {
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
        versions(tunnel.tls_min_version).contains(&suite.version())
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
    asks: ClientCertRequest,
    alpn: &[&[u8]],
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let certificate = Arc::clone(certificate);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(asks.verifier())
        .with_cert_resolver(certificate);
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    // Our order of cipher suites counts: it has the one that costs least first.
    config.ignore_client_order = true;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if asks == ClientCertRequest::Never {
        // Sessions are resumed from what the client keeps, so they cost the engine no memory. A
        // ticket is bound to its server name by the library.
        config.ticketer = Arc::clone(tickets);
        config.send_tls13_tickets = 1;
    } else {
        // A ticket would stand in for a certificate that nobody proves to hold then.
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}
