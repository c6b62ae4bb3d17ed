//! Client certificates in the handshake (ED-3). The handshake requests them and verifies the
//! possession of their keys. Their owners are checked later, with each request.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoClientAuth, ParsedCertificate};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::access::RequiredProofs;
use crate::directory::Validity;

/// Request for a client certificate in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientCertRequest {
    Never,
    /// The certificate is optional, because other proofs are accepted.
    Optional,
    /// The handshake fails without a certificate.
    Required,
}

/// Limit of certificates after the visitor's own. Real chains have one or two. The number of paths
/// that a verification may have to try grows as the factorial of this number.
const INTERMEDIATES: usize = 4;
/// Limit of all certificates of a chain, in bytes. The limit of the library is twice as high.
const CHAIN_BYTES: usize = 32 * 1024;

impl ClientCertRequest {
    /// The request for a tunnel with these requirements. A challenge does not identify a visitor,
    /// so it does not count.
    pub(super) fn required_by(required: RequiredProofs) -> Self {
        let has_others = required.token || required.session || required.password;
        match (required.certificate, has_others) {
            (false, _) => Self::Never,
            (true, true) => Self::Optional,
            (true, false) => Self::Required,
        }
    }

    /// The verifier for client certificates, with the engine's cryptography.
    pub(super) fn verifier(self) -> Arc<dyn ClientCertVerifier> {
        match self {
            Self::Never => Arc::new(NoClientAuth),
            Self::Optional | Self::Required => Arc::new(KeyPossessionVerifier {
                mandatory: self == Self::Required,
                algorithms: daemon::tls::provider().signature_verification_algorithms,
            }),
        }
    }
}

/// Verifies only that the visitor has the key of its certificate. There is no check of the issuer,
/// because a credential may be for one certificate without a trusted issuer.
#[derive(Debug)]
struct KeyPossessionVerifier {
    mandatory: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for KeyPossessionVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    /// Empty, so that visitors do not see the names of other users' authorities.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes = intermediates.iter().map(|one| one.len()).sum::<usize>() + end_entity.len();
        if intermediates.len() > INTERMEDIATES || bytes > CHAIN_BYTES {
            return Err(CertificateError::BadEncoding.into());
        }
        ParsedCertificate::try_from(end_entity)?;
        // A certificate that cannot be checked later is rejected now. Otherwise it would count as
        // absent.
        Validity::of(end_entity).ok_or(CertificateError::BadEncoding)?;
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

    /// ED-3: a certificate is required if it is the only accepted proof, and optional beside other
    /// proofs.
    #[test]
    fn ed_3_a_certificate_is_required_when_it_is_the_only_method() {
        for bits in 0..32_u8 {
            let required = RequiredProofs {
                token: bits & 1 > 0,
                session: bits & 2 > 0,
                certificate: bits & 4 > 0,
                challenge: bits & 8 > 0,
                password: bits & 16 > 0,
            };
            let expected = match bits & 0b10111 {
                0..=3 | 16..=19 => ClientCertRequest::Never,
                4 => ClientCertRequest::Required,
                _ => ClientCertRequest::Optional,
            };
            assert_eq!(
                ClientCertRequest::required_by(required),
                expected,
                "{required:?}"
            );
        }
    }

    #[test]
    fn a_chain_is_bounded() {
        let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let end_entity = made.cert.der();
        let verify = |intermediates: &[CertificateDer<'_>]| {
            let verifier = ClientCertRequest::Required.verifier();
            verifier.verify_client_cert(end_entity, intermediates, UnixTime::now())
        };
        let large = CertificateDer::from(vec![0; CHAIN_BYTES]);
        verify(&vec![end_entity.clone(); INTERMEDIATES]).unwrap();
        verify(&vec![end_entity.clone(); INTERMEDIATES + 1]).unwrap_err();
        verify(&[large]).unwrap_err();
        let garbage = CertificateDer::from(vec![0; 10]);
        let verifier = ClientCertRequest::Required.verifier();
        verifier
            .verify_client_cert(&garbage, &[], UnixTime::now())
            .unwrap_err();
    }
}
