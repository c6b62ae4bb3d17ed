//! TLS on the sockets of the data path.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::{TlsConnector, server};

use crate::{Scratch, Socket};

/// A TLS session over a [`Socket`], either side. Boxed: it is a kilobyte and a half, and moves
/// through the futures of its connection, each of which would keep room for it.
pub type TlsStream = Box<tokio_rustls::TlsStream<Socket>>;

/// Opens a session as a client.
///
/// # Errors
/// Whatever the handshake ended with. Cancel safe in the sense that dropping it closes the socket.
pub async fn connect(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    socket: Socket,
) -> io::Result<TlsStream> {
    let mut stream = TlsConnector::from(config).connect(name, socket).await?;
    stream.get_mut().1.set_buffer_limit(Some(LIMIT));
    Ok(Box::new(stream.into()))
}

/// Takes over a session whose handshake was completed as a server.
pub fn accepted(mut stream: server::TlsStream<Socket>) -> TlsStream {
    stream.get_mut().1.set_buffer_limit(Some(LIMIT));
    Box::new(stream.into())
}

/// A client for services behind tunnels that speak TLS of their own. It offers `protocols`, best
/// first.
///
/// It accepts whatever certificate a service shows. Who the service is has been proven already: it
/// is what the agent, authenticated by its token, chose to publish, under a name that only the
/// agent's own network knows. Signatures are still checked, so the handshake itself is sound.
///
/// # Errors
/// The provider has no suite of TLS 1.3 or 1.2.
pub fn service_client(
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

/// Believes every certificate, and no signature that is not made with its key.
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

/// Lets a session take a bulk chunk and its framing in one piece: with the library's smaller
/// default each chunk is cut, which costs half again per byte (measured).
const LIMIT: usize = Scratch::LARGE + Scratch::SMALL;
