//! One key with its algorithm.

use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519,
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, VerificationAlgorithm,
};

/// Signature algorithm (RFC 7518 section 3.1, RFC 8037 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
    /// Ed25519.
    EdDsa,
    /// RSA PKCS#1 v1.5 with SHA-256.
    Rs256,
}

impl Algorithm {
    /// The name in `alg`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::EdDsa => "EdDSA",
            Self::Rs256 => "RS256",
        }
    }

    /// The algorithms of public keys.
    pub(crate) const PUBLIC: [Self; 5] = [
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::EdDsa,
        Self::Rs256,
    ];

    pub(crate) fn of_public_key(self) -> Option<&'static dyn VerificationAlgorithm> {
        match self {
            Self::Hs256 => None,
            Self::Es256 => Some(&ECDSA_P256_SHA256_FIXED),
            Self::Es384 => Some(&ECDSA_P384_SHA384_FIXED),
            Self::Es512 => Some(&ECDSA_P521_SHA512_FIXED),
            Self::EdDsa => Some(&ED25519),
            Self::Rs256 => Some(&RSA_PKCS1_2048_8192_SHA256),
        }
    }
}

/// A key that verifies signatures.
pub(crate) struct VerifyingKey {
    pub(crate) id: Option<String>,
    pub(crate) algorithm: Algorithm,
    pub(crate) material: Material,
}

pub(crate) enum Material {
    Shared(Box<hmac::Key>),
    Public(ParsedPublicKey),
}

impl VerifyingKey {
    /// True if this key made the signature.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Shared(key) => hmac::verify(key, message, signature).is_ok(),
            Material::Public(key) => key.verify_sig(message, signature).is_ok(),
        }
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyingKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}
