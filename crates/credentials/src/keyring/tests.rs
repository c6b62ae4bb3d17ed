use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::json;

use super::*;
use crate::sample::{NOW, Pair, ed25519, pairs, pem, raw_token, secret, text, token};
use crate::{SigningKey, TokenRefusal, verify};

fn claims() -> Value {
    json!({"type": "auth", "userId": "u1", "exp": NOW + 60})
}

fn signed_by(pair: &Pair, header: &Value) -> String {
    text(
        &SigningKey::from_pem(&pair.private)
            .unwrap()
            .sign(&header.to_string(), &claims().to_string())
            .unwrap(),
    )
}

#[test]
fn each_public_key_verifies_only_its_own_algorithm() {
    let pairs = pairs();
    let all = pairs
        .iter()
        .try_fold(Keyring::new(), |keys, pair| keys.with_pem(&pair.public))
        .unwrap();
    assert_eq!(all.len(), 5);
    for pair in &pairs {
        let token = signed_by(pair, &json!({"alg": pair.algorithm}));
        assert!(verify(&token, &all, NOW).is_ok(), "{}", pair.algorithm);
        for other in pairs
            .iter()
            .filter(|other| other.algorithm != pair.algorithm)
        {
            let lying = signed_by(pair, &json!({"alg": other.algorithm}));
            assert_eq!(
                verify(&lying, &all, NOW).unwrap_err(),
                TokenRefusal::Signature
            );
            let foreign = Keyring::new().with_pem(&other.public).unwrap();
            assert_eq!(
                verify(&token, &foreign, NOW).unwrap_err(),
                TokenRefusal::Signature
            );
        }
    }
}

/// The classic algorithm confusion: a public key used as a shared secret.
#[test]
fn a_public_key_is_never_a_shared_secret() {
    for pair in pairs() {
        let keys = Keyring::new().with_pem(&pair.public).unwrap();
        for public in [pair.public.as_str(), pair.public.trim_end()] {
            let forger = SigningKey::from_secret(&Secret::new(public)).unwrap();
            let token = text(
                &forger
                    .sign(r#"{"alg":"HS256"}"#, &claims().to_string())
                    .unwrap(),
            );
            assert_eq!(
                verify(&token, &keys, NOW).unwrap_err(),
                TokenRefusal::Signature
            );
        }
    }
}

#[test]
fn two_secrets_are_valid_during_a_rotation() {
    let new = Secret::new("another secret, quite as long as the first");
    let keys = Keyring::new()
        .with_secret(&new)
        .unwrap()
        .with_secret(&secret())
        .unwrap();
    assert!(verify(&token(&claims()), &keys, NOW).is_ok());
    let rotated = Keyring::new().with_secret(&new).unwrap();
    assert_eq!(
        verify(&token(&claims()), &rotated, NOW).unwrap_err(),
        TokenRefusal::Signature
    );
    assert_eq!(
        Keyring::new().with_secret(&Secret::new("")).unwrap_err(),
        BadKey("the secret is empty")
    );
}

#[test]
fn pem_texts_hold_public_keys_and_nothing_else() {
    let (one, other) = (ed25519(), ed25519());
    assert_eq!(
        Keyring::new()
            .with_pem(&format!("{}{}", one.public, other.public))
            .unwrap()
            .len(),
        2
    );
    for bad in [
        String::new(),
        "x".to_owned(),
        one.private.clone(),
        pem("PUBLIC KEY", b"x"),
        pem("CERTIFICATE", b"x"),
    ] {
        assert!(Keyring::new().with_pem(&bad).is_err(), "{bad}");
    }
}

/// RFC 7515 appendix A.3: the example's key, header, payload and signature.
#[test]
fn jwks_with_the_ec_key_of_rfc_7515() {
    let keys = Keyring::new().with_jwks(
        r#"{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#,
    );
    let message = b"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let signature = URL_SAFE_NO_PAD
        .decode("DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q")
        .unwrap();
    let keys = keys.unwrap();
    assert!(keys.verifies("ES256", None, message, &signature));
    assert!(!keys.verifies("ES384", None, message, &signature));
    assert!(!keys.verifies("ES256", None, &message[1..], &signature));
}

#[test]
fn a_kid_chooses_among_the_keys_of_a_document() {
    let (one, other) = (
        Ed25519KeyPair::generate().unwrap(),
        Ed25519KeyPair::generate().unwrap(),
    );
    let jwk = |pair: &Ed25519KeyPair, id: &str| {
        json!({"kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(pair.public_key()), "kid": id,
               "use": "sig", "alg": "EdDSA", "key_ops": ["verify"]})
    };
    let document = json!({"keys": [jwk(&one, "one"), jwk(&other, "other")]});
    let keys = Keyring::new().with_jwks(&document.to_string()).unwrap();
    let key =
        SigningKey::from_pem(&pem("PRIVATE KEY", one.to_pkcs8v1().unwrap().as_ref())).unwrap();
    for (header, good) in [
        (json!({"alg": "EdDSA", "kid": "one"}), true),
        (json!({"alg": "EdDSA"}), true),
        (json!({"alg": "EdDSA", "kid": "other"}), false),
        (json!({"alg": "EdDSA", "kid": ""}), false),
    ] {
        let token = text(
            &key.sign(&header.to_string(), &claims().to_string())
                .unwrap(),
        );
        assert_eq!(verify(&token, &keys, NOW).is_ok(), good, "{header}");
    }
}

#[test]
fn keys_for_other_uses_are_ignored_and_invalid_ones_refused() {
    let x = URL_SAFE_NO_PAD.encode(Ed25519KeyPair::generate().unwrap().public_key());
    let read = |key: Value| {
        Keyring::new()
            .with_jwks(&json!({"keys": [key]}).to_string())
            .map(|keys| keys.len())
    };
    for other in [
        json!({"kty": "oct", "k": "c2VjcmV0"}),
        json!({"kty": "OKP", "crv": "X25519", "x": x}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": x, "use": "enc"}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": x, "key_ops": ["sign"]}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": x, "alg": "ES256"}),
        json!({"kty": "RSA", "alg": "PS256", "n": "AQAB", "e": "AQAB"}),
        json!({}),
    ] {
        assert_eq!(read(other.clone()), Ok(0), "{other}");
    }
    for broken in [
        json!({"kty": "OKP", "crv": "Ed25519", "x": x, "d": x}),
        json!({"kty": "OKP", "crv": "Ed25519"}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": "AA"}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": format!("{x}=")}),
        json!({"kty": "EC", "crv": "P-256", "x": x, "y": x}),
        json!({"kty": "RSA", "n": "AQAB"}),
        json!("key"),
    ] {
        assert!(read(broken.clone()).is_err(), "{broken}");
    }
    for document in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[],"keys":[]}"#] {
        assert!(Keyring::new().with_jwks(document).is_err(), "{document}");
    }
    let many = json!({"keys": vec![json!({"kty": "OKP", "crv": "Ed25519", "x": x}); 65]});
    assert_eq!(
        Keyring::new().with_jwks(&many.to_string()).unwrap_err(),
        BadKey("too many keys")
    );
}

#[test]
fn nothing_secret_is_printed() {
    let printed = format!(
        "{:?} {:?} {:?}",
        secret(),
        crate::sample::keyring(),
        SigningKey::from_secret(&secret())
    );
    assert!(
        !printed.contains("thirty-two") && printed.contains("Hs256"),
        "{printed}"
    );
    assert!(secret() == secret() && secret() != Secret::new("another"));
    assert!(raw_token("{}", "{}").starts_with("e30."));
}
