//! Client certificates in the handshake (ED-3): when they are asked for, and that their keys are
//! held. Whose they are is judged behind it, with each request.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoClientAuth, ParsedCertificate};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::access::RequiredProofs;
use crate::directory::Validity;

/// Whether a handshake asks for a client certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientCertRequest {
    Never,
    /// A visitor can prove who it is by something else too.
    Optionally,
    /// Without one there is no connection.
    Always,
}

/// Certificates behind the visitor's own that are taken: real chains have one or two. The ways
/// between them, which a verification may have to try, grow as the factorial of their number.
const INTERMEDIATES: usize = 4;
/// Bytes of them all. What the library takes is twice that.
const CHAIN_BYTES: usize = 32 * 1024;

impl ClientCertRequest {
    /// What the guards of a tunnel ask for. A challenge proves of nobody who it is.
    pub(super) fn of(guards: RequiredProofs) -> Self {
        match (guards.certificate, guards.token || guards.session) {
            (false, _) => Self::Never,
            (true, true) => Self::Optionally,
            (true, false) => Self::Always,
        }
    }

    /// What verifies the visitor's side of a handshake, with the engine's cryptography.
    pub(super) fn verifier(self) -> Arc<dyn ClientCertVerifier> {
        match self {
            Self::Never => Arc::new(NoClientAuth),
            Self::Optionally | Self::Always => Arc::new(KeyPossessionVerifier {
                mandatory: self == Self::Always,
                algorithms: daemon::tls::provider().signature_verification_algorithms,
            }),
        }
    }
}

/// Verifies that the visitor holds the key of the certificate that it shows, and nothing else: a
/// credential can be for one certificate, which need not lead anywhere.
#[derive(Debug)]
struct KeyPossessionVerifier {
    mandatory: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for KeyPossessionVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    /// None: the names of other people's authorities are no business of a visitor's.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        behind: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes = behind.iter().map(|one| one.len()).sum::<usize>() + own.len();
        if behind.len() > INTERMEDIATES || bytes > CHAIN_BYTES {
            return Err(CertificateError::BadEncoding.into());
        }
        ParsedCertificate::try_from(own)?;
        // What cannot be judged later is not shown: it would count as none.
        Validity::of(own).ok_or(CertificateError::BadEncoding)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ED-3: required where nothing else proves who a visitor is, optional beside it.
    #[test]
    fn ed_3_a_certificate_is_required_when_it_is_the_only_method() {
        for bits in 0..16_u8 {
            let guards = RequiredProofs {
                token: bits & 1 > 0,
                session: bits & 2 > 0,
                certificate: bits & 4 > 0,
                challenge: bits & 8 > 0,
            };
            let expected = match bits & 7 {
                0..=3 => ClientCertRequest::Never,
                4 => ClientCertRequest::Always,
                _ => ClientCertRequest::Optionally,
            };
            assert_eq!(ClientCertRequest::of(guards), expected, "{guards:?}");
        }
    }

    #[test]
    fn a_chain_is_bounded() {
        let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let own = made.cert.der();
        let verify = |behind: &[CertificateDer<'_>]| {
            let verifier = ClientCertRequest::Always.verifier();
            verifier.verify_client_cert(own, behind, UnixTime::now())
        };
        let large = CertificateDer::from(vec![0; CHAIN_BYTES]);
        verify(&vec![own.clone(); INTERMEDIATES]).unwrap();
        verify(&vec![own.clone(); INTERMEDIATES + 1]).unwrap_err();
        verify(&[large]).unwrap_err();
        let garbage = CertificateDer::from(vec![0; 10]);
        let verifier = ClientCertRequest::Always.verifier();
        verifier
            .verify_client_cert(&garbage, &[], UnixTime::now())
            .unwrap_err();
    }
}
