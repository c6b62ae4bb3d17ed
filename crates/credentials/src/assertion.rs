//! The key that signs assertions about visitors for services.
//!
//! The engines of a cluster and its platform share the enrolment secret. Both derive the same key
//! from it: the engines sign, and the platform publishes the public half. The key is not one of the
//! platform's own keys, so an engine cannot sign a token of the platform.

use std::fmt;

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hkdf;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::key::Algorithm;
use crate::keyring::BadKey;
use crate::mint::{MintError, SigningKey};
use crate::secret::Secret;

/// The key of a cluster for assertions: ES256, because more libraries verify it than `EdDSA`.
pub struct AssertionKey {
    key: SigningKey,
    jwk: Value,
}

impl AssertionKey {
    /// Derives the key from the enrolment secret of a cluster (HKDF-SHA256, RFC 5869).
    ///
    /// # Errors
    /// The secret is empty, or the library fails.
    pub fn derive(secret: &Secret) -> Result<Self, BadKey> {
        if secret.expose().is_empty() {
            return Err(BadKey("the secret is empty"));
        }
        let failed = BadKey("the key cannot be derived");
        let (scalar, pair_key) = derive_private_key(secret).ok_or(failed)?;
        let public = pair_key.compute_public_key().map_err(|_| failed)?;
        let point = public.as_ref();
        let pair = EcdsaKeyPair::from_private_key_and_public_key(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &scalar,
            point,
        );
        let pair = pair.map_err(|_| failed)?;
        // SEC 1 section 2.3.3: an uncompressed point is 4 and two coordinates.
        let coordinates = point.strip_prefix(&[4]);
        let coordinates = coordinates.and_then(|both| both.split_at_checked(COORDINATE_BYTES));
        let (x, y) = coordinates.ok_or(failed)?;
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        // RFC 7638: the members in this order, without spaces.
        let members = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, members.as_bytes()));
        let jwk = json!({
            "kty": "EC",
            "crv": "P-256",
            "x": x,
            "y": y,
            "use": "sig",
            "alg": Algorithm::Es256.as_str(),
            "kid": id,
        });
        let key = SigningKey::from_p256(pair, id);
        Ok(Self { key, jwk })
    }

    /// The public half (RFC 7517).
    pub fn jwk(&self) -> &Value {
        &self.jwk
    }

    /// Signs the claims of an assertion, as a JWT (RFC 7519). Its `typ` is `JWT`, because libraries
    /// refuse other types by default. The key distinguishes it from tokens.
    ///
    /// # Errors
    /// The library fails to sign.
    pub fn sign(&self, claims: &Value) -> Result<Secret, MintError> {
        let header = Value::Object(self.key.header());
        self.key.sign(&header.to_string(), &claims.to_string())
    }
}

impl fmt::Debug for AssertionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AssertionKey")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// The first derived scalar that is a private key. One in four billion is not.
fn derive_private_key(secret: &Secret) -> Option<([u8; COORDINATE_BYTES], PrivateKey)> {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"svc-identity");
    let extracted = salt.extract(secret.expose());
    (0..=u8::MAX).find_map(|attempt| {
        let mut scalar = [0; COORDINATE_BYTES];
        let info = [b"assertion-es256-v1".as_slice(), &[attempt]];
        let expanded = extracted.expand(&info, hkdf::HKDF_SHA256).ok()?;
        expanded.fill(&mut scalar).ok()?;
        let key = PrivateKey::from_private_key(&ECDH_P256, &scalar).ok()?;
        Some((scalar, key))
    })
}

/// Length of a coordinate and of a private key on P-256.
const COORDINATE_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect;
    use crate::keyring::Keyring;

    #[test]
    fn an_assertion_is_verified_with_the_published_key() {
        let key = AssertionKey::derive(&Secret::new("of the cluster")).unwrap();
        let text = key.sign(&json!({"sub": "usr_ann"})).unwrap();
        let text = std::str::from_utf8(text.expose()).unwrap();
        let read = inspect(text).unwrap();
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": key.jwk()["kid"]});
        assert_eq!(
            read,
            json!({"header": header, "claims": {"sub": "usr_ann"}})
        );
        let document = json!({"keys": [key.jwk()]}).to_string();
        let keys = Keyring::new().with_jwks(&document).unwrap();
        let (signed, signature) = text.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let id = key.jwk()["kid"].as_str();
        assert!(keys.verifies("ES256", id, signed.as_bytes(), &signature));
        assert!(!keys.verifies("ES256", id, b"other", &signature));
    }

    #[test]
    fn every_process_derives_the_same_key() {
        let derive = |secret: &str| AssertionKey::derive(&Secret::new(secret));
        let one = derive("of the cluster").unwrap();
        assert_eq!(one.jwk(), derive("of the cluster").unwrap().jwk());
        assert_ne!(one.jwk(), derive("of another cluster").unwrap().jwk());
        // A change would make the platform and the engines of two versions disagree.
        let id = "3rF9Jp33isFZILr_uxGFVwJsQGIaPwgU65jzLdAEmlI";
        assert_eq!(one.jwk()["kid"], id);
        assert!(derive("").is_err());
    }
}
