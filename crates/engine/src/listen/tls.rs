//! TLS server configurations, created once and shared.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};
use types::tunnel::{PropertyError, TlsVersion, TunnelProperties};
use wire::handshake::{ALPN_RSTRM, ALPN_SVC};

use super::client_auth::ClientCertRequest;
use crate::live::LiveTunnel;

const H2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";
/// The protocol that curl offers with `--http1.0`.
const HTTP10: &[u8] = b"http/1.0";
const HTTP: &[&[u8]] = &[H2, HTTP1, HTTP10];

/// The configurations of the TLS listener.
#[derive(Debug)]
pub(crate) struct TlsConfigs {
    certificate: Arc<dyn ResolvesServerCert>,
    tickets: Arc<dyn ProducesTickets>,
    /// The base host: agents and the Engine API.
    pub(super) base: Arc<ServerConfig>,
    /// Published HTTP tunnels, and names without one.
    http: SharedConfigs,
    /// Published HTTP tunnels that require TLS 1.3.
    http_modern: SharedConfigs,
}

/// One configuration for each kind of client certificate request.
#[derive(Debug)]
struct SharedConfigs {
    never: Arc<ServerConfig>,
    optionally: Arc<ServerConfig>,
    always: Arc<ServerConfig>,
}

/// Current requirements of a tunnel and its project for a handshake.
#[derive(Debug)]
pub(super) struct TlsPolicy<'a> {
    properties: &'a TunnelProperties,
    min_version: Option<TlsVersion>,
    pub(super) client_cert: ClientCertRequest,
}

impl<'a> TlsPolicy<'a> {
    /// The newer of the two minimum versions applies (ED-8). A change of the project is effective
    /// for the next handshake.
    pub(super) fn of<A>(tunnel: &'a LiveTunnel<A>) -> Self {
        let properties = &tunnel.view.properties;
        let project = tunnel.project.state().policy.min_tls;
        let modern = [properties.tls_min_version, project].contains(&Some(TlsVersion::Tls13));
        Self {
            properties,
            min_version: modern.then_some(TlsVersion::Tls13),
            client_cert: ClientCertRequest::required_by(tunnel.policy.required_proofs()),
        }
    }
}

impl TlsConfigs {
    /// # Errors
    /// The cryptography library refuses the versions, or has no randomness for tickets.
    pub(crate) fn new(certificate: Arc<dyn ResolvesServerCert>) -> Result<Self, rustls::Error> {
        let tickets = rustls::crypto::aws_lc_rs::Ticketer::new()?;
        let make = |versions, client_cert, alpn: &[&[u8]]| {
            let provider = daemon::tls::provider();
            config(
                &certificate,
                &tickets,
                provider,
                versions,
                client_cert,
                alpn,
            )
        };
        let common = |versions| {
            Ok::<_, rustls::Error>(SharedConfigs {
                never: make(versions, ClientCertRequest::Never, HTTP)?,
                optionally: make(versions, ClientCertRequest::Optional, HTTP)?,
                always: make(versions, ClientCertRequest::Required, HTTP)?,
            })
        };
        Ok(Self {
            base: make(
                ALL_VERSIONS,
                ClientCertRequest::Never,
                &[ALPN_SVC, ALPN_RSTRM, H2, HTTP1, HTTP10],
            )?,
            http: common(ALL_VERSIONS)?,
            http_modern: common(TLS13_ONLY)?,
            certificate,
            tickets,
        })
    }

    /// The configuration for a published HTTP tunnel, or for a name without one.
    ///
    /// # Errors
    /// Same errors as [`TlsConfigs::new`].
    pub(super) fn http(
        &self,
        tunnel: Option<&TlsPolicy<'_>>,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let Some(policy) = tunnel else {
            return Ok(Arc::clone(&self.http.never));
        };
        if !policy.properties.tls_ciphers.is_empty() {
            return self.tunnel_config(policy, HTTP);
        }
        let common = match policy.min_version {
            Some(TlsVersion::Tls13) => &self.http_modern,
            Some(TlsVersion::Tls12) | None => &self.http,
        };
        Ok(Arc::clone(match policy.client_cert {
            ClientCertRequest::Never => &common.never,
            ClientCertRequest::Optional => &common.optionally,
            ClientCertRequest::Required => &common.always,
        }))
    }

    /// The configuration for a terminated `tls` tunnel, with its own ALPN names and minimum
    /// version.
    ///
    /// # Errors
    /// Same errors as [`TlsConfigs::new`].
    pub(super) fn terminated(
        &self,
        policy: &TlsPolicy<'_>,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let alpns = policy.properties.tls_alpns.iter();
        let alpns: Vec<&[u8]> = alpns.map(String::as_bytes).collect();
        self.tunnel_config(policy, &alpns)
    }

    fn tunnel_config(
        &self,
        policy: &TlsPolicy<'_>,
        alpn: &[&[u8]],
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        // The suites were checked when the tunnel was opened. The handshake fails here if its
        // project has required another version since.
        let provider =
            provider(policy.properties).map_err(|error| rustls::Error::General(error.message))?;
        let (certificate, tickets) = (&self.certificate, &self.tickets);
        let versions = versions(policy.min_version);
        config(
            certificate,
            tickets,
            provider,
            versions,
            policy.client_cert,
            alpn,
        )
    }
}

/// Checks `tls_ciphers`. The request is fulfilled exactly, or refused.
///
/// # Errors
/// A suite is unknown, or no suite is usable with `tls_min_version`.
pub(crate) fn check_ciphers(tunnel: &TunnelProperties) -> Result<(), PropertyError> {
    provider(tunnel).map(drop)
}

fn versions(min: Option<TlsVersion>) -> &'static [&'static SupportedProtocolVersion] {
    match min {
        Some(TlsVersion::Tls13) => TLS13_ONLY,
        Some(TlsVersion::Tls12) | None => ALL_VERSIONS,
    }
}

/// The cryptography of a tunnel: the suites that its owner allows, in the engine's order.
fn provider(tunnel: &TunnelProperties) -> Result<Arc<CryptoProvider>, PropertyError> {
    let engine_provider = daemon::tls::provider();
    if tunnel.tls_ciphers.is_empty() {
        return Ok(engine_provider);
    }
    let is_named = |name: &String, suite: &SupportedCipherSuite| {
        let library = suite.suite().as_str().unwrap_or_default();
        // The library adds the version to the name; the IANA registry does not.
        match library.strip_prefix("TLS13_") {
            Some(rest) => name.strip_prefix("TLS_") == Some(rest),
            None => name == library,
        }
    };
    let unknown = tunnel.tls_ciphers.iter().position(|name| {
        !engine_provider
            .cipher_suites
            .iter()
            .any(|suite| is_named(name, suite))
    });
    if let Some(place) = unknown {
        let message = "not a cipher suite of this engine; use the names of the IANA registry";
        return Err(PropertyError::new(format!("tls_ciphers.{place}"), message));
    }
    let allowed = |suite: &SupportedCipherSuite| {
        versions(tunnel.tls_min_version).contains(&suite.version())
            && tunnel.tls_ciphers.iter().any(|name| is_named(name, suite))
    };
    let mut tunnel_provider = CryptoProvider::clone(&engine_provider);
    tunnel_provider.cipher_suites.retain(allowed);
    if tunnel_provider.cipher_suites.is_empty() {
        let message = "no suite of the version that tls_min_version requires";
        return Err(PropertyError::new("tls_ciphers", message));
    }
    Ok(Arc::new(tunnel_provider))
}

const ALL_VERSIONS: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
const TLS13_ONLY: &[&SupportedProtocolVersion] = &[&version::TLS13];

fn config(
    certificate: &Arc<dyn ResolvesServerCert>,
    tickets: &Arc<dyn ProducesTickets>,
    provider: Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    client_cert: ClientCertRequest,
    alpn: &[&[u8]],
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let certificate = Arc::clone(certificate);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(client_cert.verifier())
        .with_cert_resolver(certificate);
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    // The engine's order of cipher suites applies. It starts with the cheapest one.
    config.ignore_client_order = true;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if client_cert == ClientCertRequest::Never {
        // Sessions are resumed from tickets that the client stores, so they cost the engine no
        // memory. The library binds a ticket to its server name.
        config.ticketer = Arc::clone(tickets);
        config.send_tls13_tickets = 1;
    } else {
        // A resumed session would reuse the certificate without a new proof of its key.
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}
