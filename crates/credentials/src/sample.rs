//! Keys and tokens for the tests of this crate. No key is kept in a file.

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair,
    KeyPair as _, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::{Keyring, Secret, SigningKey, TokenRefusal, VerifiedToken, verify};

/// Current time of all tests.
pub(crate) const NOW: i64 = 1_800_000_000;

pub(crate) fn secret() -> Secret {
    Secret::new("a secret of thirty-two bytes, or more")
}

pub(crate) fn keyring() -> Keyring {
    Keyring::new().with_secret(&secret()).unwrap()
}

/// A token with these claims, signed with [`secret`].
pub(crate) fn token(claims: &Value) -> String {
    raw_token(r#"{"alg":"HS256","typ":"JWT"}"#, &claims.to_string())
}

/// A token with this text for a header and this for a payload.
pub(crate) fn raw_token(header: &str, claims: &str) -> String {
    text(
        &SigningKey::from_secret(&secret())
            .unwrap()
            .sign(header, claims)
            .unwrap(),
    )
}

pub(crate) fn text(token: &Secret) -> String {
    String::from_utf8(token.expose().to_vec()).unwrap()
}

pub(crate) fn verify_claims(claims: &Value) -> Result<VerifiedToken, TokenRefusal> {
    verify(&token(claims), &keyring(), NOW)
}

/// A private and a public key in PEM.
pub(crate) struct Pair {
    pub(crate) algorithm: &'static str,
    pub(crate) private: String,
    pub(crate) public: String,
}

pub(crate) fn pairs() -> Vec<Pair> {
    vec![
        ecdsa("ES256", &ECDSA_P256_SHA256_FIXED_SIGNING),
        ecdsa("ES384", &ECDSA_P384_SHA384_FIXED_SIGNING),
        ecdsa("ES512", &ECDSA_P521_SHA512_FIXED_SIGNING),
        ed25519(),
        rsa(),
    ]
}

pub(crate) fn ed25519() -> Pair {
    let pair = Ed25519KeyPair::generate().unwrap();
    Pair {
        algorithm: "EdDSA",
        private: pem("PRIVATE KEY", pair.to_pkcs8v1().unwrap().as_ref()),
        public: pem("PUBLIC KEY", pair.public_key().as_der().unwrap().as_ref()),
    }
}

fn ecdsa(algorithm: &'static str, signing: &'static EcdsaSigningAlgorithm) -> Pair {
    let pair = EcdsaKeyPair::generate(signing).unwrap();
    Pair {
        algorithm,
        private: pem("PRIVATE KEY", pair.to_pkcs8v1().unwrap().as_ref()),
        public: pem("PUBLIC KEY", pair.public_key().as_der().unwrap().as_ref()),
    }
}

fn rsa() -> Pair {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().unwrap();
    Pair {
        algorithm: "RS256",
        private: pem("PRIVATE KEY", der.as_ref()),
        public: pem("PUBLIC KEY", pair.public_key().as_der().unwrap().as_ref()),
    }
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        STANDARD.encode(der)
    )
}
