//! The keys that a service trusts.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use aws_lc_rs::hmac;
use aws_lc_rs::rsa::PublicEncryptingKey;
use aws_lc_rs::signature::{ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Map, Value};
use types::json::{self, Limits};

use crate::key::{Algorithm, Material, VerifyingKey};
use crate::secret::Secret;

/// The keys that verify tokens. Cheap to clone; a rotation creates a new one.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    keys: Vec<Arc<VerifyingKey>>,
    compat: bool,
}

impl Keyring {
    /// Creates an empty key ring: every token is refused.
    pub fn new() -> Self {
        Self::default()
    }

    /// Accepts rstream's spellings in boundaries (`compat.rstream`).
    #[must_use]
    pub fn with_compat(mut self, compat: bool) -> Self {
        self.compat = compat;
        self
    }

    /// Adds an HS256 secret; two are valid during a rotation. It must not be empty; callers should
    /// warn about fewer than [`RECOMMENDED_SECRET_BYTES`].
    pub fn with_secret(self, secret: &Secret) -> Result<Self, BadKey> {
        if secret.expose().is_empty() {
            return Err(BadKey("the secret is empty"));
        }
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose());
        self.with(VerifyingKey {
            id: None,
            algorithm: Algorithm::Hs256,
            material: Material::Shared(Box::new(key)),
        })
    }

    /// Adds every public key of a PEM text (`PUBLIC KEY`, RFC 7468 section 13): P-256, P-384,
    /// P-521, Ed25519, or RSA of 2048 to 8192 bits.
    pub fn with_pem(mut self, pem: &str) -> Result<Self, BadKey> {
        let before = self.keys.len();
        for section in SubjectPublicKeyInfoDer::pem_slice_iter(pem.as_bytes()) {
            let der = section.map_err(|_| BadKey("not PEM"))?;
            self =
                self.with(public_key(&der).ok_or(BadKey("not a public key of a supported kind"))?)?;
        }
        if self.keys.len() == before {
            Err(BadKey("no PUBLIC KEY section in the PEM text"))
        } else {
            Ok(self)
        }
    }

    /// Adds the signature keys of a JWKS document (RFC 7517 section 5). Keys of other kinds and for
    /// other uses are ignored. Shared secrets are ignored as well, because they do not belong in a
    /// document.
    pub fn with_jwks(mut self, document: &str) -> Result<Self, BadKey> {
        let document = json::parse(document.as_bytes(), JWKS_LIMITS)
            .map_err(|_| BadKey("not a JSON document"))?;
        let keys = document
            .get("keys")
            .and_then(Value::as_array)
            .ok_or(BadKey("the document contains no list of keys"))?;
        for key in keys {
            let members = key
                .as_object()
                .ok_or(BadKey("a key in the document is not an object"))?;
            if let Some(key) = jwk(members)? {
                self = self.with(key)?;
            }
        }
        Ok(self)
    }

    /// True if there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn compat(&self) -> bool {
        self.compat
    }

    /// True if the signature is valid for a key with this algorithm. A key with an id is tried
    /// for tokens with that id or without one; a key without an id for every token.
    pub(crate) fn verifies(
        &self,
        algorithm: &str,
        id: Option<&str>,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let named =
            |key: &VerifyingKey| id.is_none() || key.id.is_none() || key.id.as_deref() == id;
        self.keys
            .iter()
            .filter(|key| key.algorithm.as_str() == algorithm && named(key))
            .any(|key| key.verifies(message, signature))
    }

    fn with(mut self, key: VerifyingKey) -> Result<Self, BadKey> {
        if self.keys.len() == MAX_KEYS {
            return Err(BadKey("too many keys"));
        }
        self.keys.push(Arc::new(key));
        Ok(self)
    }
}

/// A key that cannot be used. The message does not repeat the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadKey(pub(crate) &'static str);

fn public_key(spki: &[u8]) -> Option<VerifyingKey> {
    // The library checks the kind and curve of the key, so at most one algorithm fits.
    Algorithm::PUBLIC.into_iter().find_map(|algorithm| {
        let key = ParsedPublicKey::new(algorithm.of_public_key()?, spki).ok()?;
        if algorithm == Algorithm::Rs256 {
            has_rsa_size(&PublicEncryptingKey::from_der(spki).ok()?)?;
        }
        Some(VerifyingKey {
            id: None,
            algorithm,
            material: Material::Public(key),
        })
    })
}

/// RFC 7517 section 4, RFC 7518 section 6, RFC 8037 section 2.
fn jwk(members: &Map<String, Value>) -> Result<Option<VerifyingKey>, BadKey> {
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    let for_signatures = text("use").is_none_or(|purpose| purpose == "sig")
        && members
            .get("key_ops")
            .and_then(Value::as_array)
            .is_none_or(|operations| operations.iter().any(|operation| operation == "verify"));
    let (algorithm, coordinate_bytes) = match (text("kty"), text("crv")) {
        (Some("EC"), Some("P-256")) => (Algorithm::Es256, 32),
        (Some("EC"), Some("P-384")) => (Algorithm::Es384, 48),
        (Some("EC"), Some("P-521")) => (Algorithm::Es512, 66),
        (Some("OKP"), Some("Ed25519")) => (Algorithm::EdDsa, 32),
        (Some("RSA"), _) => (Algorithm::Rs256, 0),
        _ => return Ok(None),
    };
    if !for_signatures || text("alg").is_some_and(|given| given != algorithm.as_str()) {
        return Ok(None);
    }
    if members.contains_key("d") {
        return Err(BadKey("a key in the document is a private key"));
    }
    let bytes = |name: &str| {
        let bytes = text(name).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        bytes.ok_or(BadKey("a key in the document is incomplete"))
    };
    let coordinate = |name: &str| {
        let bytes = bytes(name)?;
        if bytes.len() == coordinate_bytes {
            Ok(bytes)
        } else {
            Err(BadKey("a coordinate of a key has the wrong length"))
        }
    };
    let parse = |bytes: &[u8]| {
        algorithm
            .of_public_key()
            .and_then(|verification| ParsedPublicKey::new(verification, bytes).ok())
    };
    let parsed = match algorithm {
        Algorithm::Rs256 => rsa(&bytes("n")?, &bytes("e")?),
        Algorithm::EdDsa => parse(&coordinate("x")?),
        // SEC 1 section 2.3.3: an uncompressed point.
        _ => parse(&[&[4], &*coordinate("x")?, &*coordinate("y")?].concat()),
    };
    let key = parsed.ok_or(BadKey("a key in the document is not a valid key"))?;
    Ok(Some(VerifyingKey {
        id: text("kid").map(str::to_owned),
        algorithm,
        material: Material::Public(key),
    }))
}

/// RFC 7518 section 6.3.1. The library checks a key of this form only when a signature is verified,
/// but an operator should get an error when it is read.
fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<ParsedPublicKey> {
    let is_odd = |number: &[u8]| number.last().is_some_and(|last| last % 2 == 1);
    // RFC 8017 section 3.1; the longest exponent that the library accepts has 33 bits.
    let exponent_fits = exponent != [1] && (1..=5).contains(&exponent.len());
    if !is_odd(modulus) || !is_odd(exponent) || !exponent_fits {
        return None;
    }
    let components = || RsaPublicKeyComponents {
        n: modulus,
        e: exponent,
    };
    has_rsa_size(&components().try_into().ok()?)?;
    let parsed = components().to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256);
    parsed.ok()
}

fn has_rsa_size(key: &PublicEncryptingKey) -> Option<()> {
    (2048..=8192).contains(&key.key_size_bits()).then_some(())
}

/// RFC 7518 section 3.2 requires a key as long as the hash. Shorter secrets are accepted because
/// common token tools accept them; the operator gets a warning.
pub const RECOMMENDED_SECRET_BYTES: usize = 32;

/// Limits the number of signature checks that one invalid token can cause.
const MAX_KEYS: usize = 64;

/// Enough for [`MAX_KEYS`] RSA keys with certificates.
const JWKS_LIMITS: Limits = Limits {
    bytes: 256 * 1024,
    depth: 8,
};
