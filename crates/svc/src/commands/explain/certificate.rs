//! The certificate of the edge: its contents, and the result of its verification.

use std::{path::Path, sync::Arc};

use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use serde::Serialize;
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

use crate::failure::Failure;

/// Contents of a certificate.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::commands) struct Certificate {
    /// DNS names that it covers.
    pub(in crate::commands) names: Vec<String>,
    /// Issuer.
    pub(in crate::commands) issuer: String,
    /// Expiry (RFC 3339).
    pub(in crate::commands) expires_at: String,
    /// True if it is trusted for the requested name.
    pub(in crate::commands) trusted: bool,
    /// Reason why it is not trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) problem: Option<String>,
}

/// A verifier that records the certificate and verifies it normally. A rejected certificate is the
/// one that the user needs to see.
#[derive(Debug)]
pub(in crate::commands) struct RecordingVerifier {
    verifier: Arc<dyn ServerCertVerifier>,
    certificate: Mutex<Option<Certificate>>,
}

impl RecordingVerifier {
    /// Trusts the CA certificates in `ca_file` (PEM). Without it, trusts those of the system.
    pub(in crate::commands) fn new(ca_file: Option<&Path>) -> Result<Arc<Self>, Failure> {
        let cannot = |error: &dyn std::fmt::Display| {
            Failure::usage(format!("cannot verify certificates: {error}")).hint("check --ca-file")
        };
        let provider = crypto_provider();
        let verifier: Arc<dyn ServerCertVerifier> = match ca_file {
            None => Arc::new(
                rustls_platform_verifier::Verifier::new(provider)
                    .map_err(|error| cannot(&error))?,
            ),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                let certificates = CertificateDer::pem_file_iter(path)
                    .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                    .map_err(|error| cannot(&format!("{}: {error}", path.display())))?;
                for certificate in certificates {
                    roots.add(certificate).map_err(|error| cannot(&error))?;
                }
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| cannot(&error))?
            }
        };
        Ok(Arc::new(Self {
            verifier,
            certificate: Mutex::new(None),
        }))
    }

    /// A TLS client that verifies with it.
    pub(in crate::commands) fn client(self: &Arc<Self>) -> Result<ClientConfig, Failure> {
        let recorder: Arc<dyn ServerCertVerifier> = Arc::clone(self) as _;
        let mut config = ClientConfig::builder_with_provider(crypto_provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::from_error("cannot open a TLS connection", error))?
            .dangerous()
            .with_custom_certificate_verifier(recorder)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// The recorded certificate, if a handshake got that far.
    pub(in crate::commands) fn recorded(&self) -> Option<Certificate> {
        self.certificate.lock().clone()
    }
}

impl ServerCertVerifier for RecordingVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let judged = self.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        *self.certificate.lock() = Some(Certificate {
            trusted: judged.is_ok(),
            problem: judged.as_ref().err().map(ToString::to_string),
            ..Certificate::read(end_entity)
        });
        judged
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

impl Certificate {
    /// Reads the readable fields. A malformed certificate yields empty ones.
    fn read(der: &CertificateDer<'_>) -> Self {
        let Ok((_rest, certificate)) = parse_x509_certificate(der) else {
            return Self::default();
        };
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.map(|names| {
            let dns = |name: &GeneralName<'_>| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                _ => None,
            };
            names.value.general_names.iter().filter_map(dns).collect()
        });
        let ends = Timestamp::from_second(certificate.validity().not_after.timestamp());
        Self {
            names: names.unwrap_or_default(),
            issuer: certificate.issuer().to_string(),
            expires_at: ends.map(|ends| ends.to_string()).unwrap_or_default(),
            ..Self::default()
        }
    }
}

fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
