//! TLS on the sockets of the data path.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::{TlsConnector, server};

use crate::{Scratch, Socket};

/// Lets a session accept a bulk chunk and its framing in one piece. With the library's smaller
/// default each chunk is split, which costs 50 % more CPU per byte (measured).
const TLS_BUFFER_LIMIT: usize = Scratch::LARGE + Scratch::SMALL;

/// A TLS session over a [`Socket`], as a client or a server. Boxed: it is 1.5 KB, and each future
/// that holds it would be that much larger.
pub type TlsStream = Box<tokio_rustls::TlsStream<Socket>>;

/// Opens a session as a client.
///
/// # Errors
/// Any error of the handshake.
///
/// # Cancellation
/// Dropping the future closes the socket.
pub async fn connect(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    socket: Socket,
) -> io::Result<TlsStream> {
    let mut stream = TlsConnector::from(config).connect(name, socket).await?;
    stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER_LIMIT));
    Ok(Box::new(stream.into()))
}

/// Wraps a server session after its handshake.
pub fn wrap_server_session(mut stream: server::TlsStream<Socket>) -> TlsStream {
    stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER_LIMIT));
    Box::new(stream.into())
}

/// A client configuration for private services that use TLS. It offers `protocols`, the preferred
/// one first.
///
/// It accepts any certificate of a service. The identity of the service is established already: the
/// agent, authenticated by its token, chose to publish it, under a name that only the agent's own
/// network has. Signatures are still checked, so the handshake itself is sound.
///
/// # Errors
/// The provider has no cipher suite of TLS 1.3 or 1.2.
pub fn service_client_config(
    provider: Arc<CryptoProvider>,
    protocols: &[&[u8]],
) -> Result<ClientConfig, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// Accepts every certificate, but verifies that signatures were made with its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

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
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
