//! Signed statements that are not tokens. They have the same envelope and another `typ`, so that
//! neither is ever accepted as the other (RFC 8725 section 3.11).

use serde_json::{Map, Value};

use crate::jws::Compact;
use crate::key::Algorithm;
use crate::keyring::Keyring;
use crate::refusal::TokenRefusal;

/// Verifies a statement of the platform: `EdDSA`, by the key that the header names, with exactly
/// this `typ`. The caller interprets the claims and checks their expiry.
///
/// # Errors
/// [`TokenRefusal`], for the log.
pub fn verify_statement(
    text: &str,
    typ: &str,
    keys: &Keyring,
) -> Result<Map<String, Value>, TokenRefusal> {
    let compact = Compact::parse(text)?;
    let (algorithm, key_id) =
        compact.key_hint_of(|given| given.is_some_and(|given| given.eq_ignore_ascii_case(typ)))?;
    if algorithm != Algorithm::EdDsa.as_str() {
        return Err(TokenRefusal::Header("alg"));
    }
    let key_id = key_id.ok_or(TokenRefusal::Header("kid"))?;
    let (signed, signature) = (compact.signed.as_bytes(), &compact.signature);
    if !keys.verifies(algorithm, Some(key_id), signed, signature) {
        return Err(TokenRefusal::Signature);
    }
    compact.claims().ok_or(TokenRefusal::Payload)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::json;

    use super::*;

    const TYP: &str = "svc-sign-in+jwt";

    fn signed(key: &Ed25519KeyPair, header: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(header), part(&json!({"sub": "usr_ann"})));
        let signature = URL_SAFE_NO_PAD.encode(key.sign(text.as_bytes()));
        format!("{text}.{signature}")
    }

    /// ED-2: no token is accepted as a statement, and no statement as a token.
    #[test]
    fn ed_2_a_statement_has_its_own_type_and_a_named_key() {
        let key = Ed25519KeyPair::generate().unwrap();
        let x = URL_SAFE_NO_PAD.encode(key.public_key());
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": "one", "x": x});
        let document = json!({"keys": [jwk]}).to_string();
        let keys = Keyring::new().with_jwks(&document).unwrap();
        let judge = |header: Value| verify_statement(&signed(&key, &header), TYP, &keys);
        let good = json!({"alg": "EdDSA", "typ": TYP, "kid": "one"});
        assert_eq!(judge(good.clone()).unwrap()["sub"], "usr_ann");
        for (header, refused) in [
            (
                json!({"alg": "EdDSA", "typ": "JWT", "kid": "one"}),
                TokenRefusal::Header("typ"),
            ),
            (
                json!({"alg": "EdDSA", "kid": "one"}),
                TokenRefusal::Header("typ"),
            ),
            (
                json!({"alg": "EdDSA", "typ": TYP}),
                TokenRefusal::Header("kid"),
            ),
            (
                json!({"alg": "HS256", "typ": TYP, "kid": "one"}),
                TokenRefusal::Header("alg"),
            ),
            (
                json!({"alg": "EdDSA", "typ": TYP, "kid": "two"}),
                TokenRefusal::Signature,
            ),
        ] {
            assert_eq!(judge(header.clone()), Err(refused), "{header}");
        }
        let as_token = crate::verify(&signed(&key, &good), &keys, 0);
        assert_eq!(as_token.unwrap_err(), TokenRefusal::Header("typ"));
        let stranger = Ed25519KeyPair::generate().unwrap();
        let forged = verify_statement(&signed(&stranger, &good), TYP, &keys);
        assert_eq!(forged, Err(TokenRefusal::Signature));
    }
}
