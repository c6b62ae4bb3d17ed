//! TLS of the service's own, within its tunnel.

use std::io;
use std::sync::{Arc, LazyLock};

use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{ConnectError, HANDSHAKE_DEADLINE};
use crate::agents::{Agent, TunnelStream};
use crate::limits::Shaped;
use crate::live::LiveTunnel;

/// Makes a session with the service of a tunnel, within [`HANDSHAKE_DEADLINE`].
pub(super) async fn connect(
    stream: Shaped<TunnelStream>,
    tunnel: &LiveTunnel<Agent>,
    config: &Arc<ClientConfig>,
) -> Result<TlsStream<Shaped<TunnelStream>>, ConnectError> {
    let name = tunnel
        .view
        .properties
        .hostname
        .as_ref()
        .map_or("localhost", |name| name.as_str());
    let name = ServerName::try_from(name.to_owned())
        .map_err(|error| ConnectError::Tls(io::Error::other(error)))?;
    let handshake = TlsConnector::from(Arc::clone(config)).connect(name, stream);
    tokio::time::timeout(HANDSHAKE_DEADLINE, handshake)
        .await
        .map_err(|_| ConnectError::Deadline)?
        .map_err(ConnectError::Tls)
}

pub(super) static EITHER: LazyLock<Arc<ClientConfig>> =
    LazyLock::new(|| client_config(&[b"h2", b"http/1.1"]));
pub(super) static NO_PROTOCOL: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| client_config(&[]));
pub(super) static HTTP1_ONLY: LazyLock<Arc<ClientConfig>> =
    LazyLock::new(|| client_config(&[b"http/1.1"]));

fn client_config(alpn: &[&[u8]]) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(daemon::tls::provider());
    #[expect(
        clippy::expect_used,
        reason = "the provider has suites of both versions"
    )]
    let builder = builder
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .expect("the provider supports both versions");
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

/// Accepts whatever certificate a service shows. Who the service is has been proven already: it
/// is what the agent, authenticated by its token, chose to publish, under a name that only the
/// agent's own network knows. Signatures are still checked, so the handshake itself is sound.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &daemon::tls::provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &daemon::tls::provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        daemon::tls::provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
