use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::sample::{NOW, keyring, raw_token, token, verify_claims};

fn good() -> Value {
    json!({"type": "auth", "userId": "u1", "iat": NOW, "exp": NOW + 300})
}

/// The valid claims with one added or replaced.
fn with(name: &str, value: Value) -> Value {
    let mut claims = good();
    claims[name] = value;
    claims
}

fn refusal(token: &str) -> TokenRefusal {
    verify(token, &keyring(), NOW).unwrap_err()
}

#[test]
fn a_valid_token_has_its_claims() {
    let verified = verify_claims(&json!({
        "type": "app", "clientId": "c1", "userId": "u1", "iat": NOW, "nbf": NOW, "exp": NOW + 60,
        "permissions": ["tunnels.resources.read-only", "some.later.permission"],
        "resources": {"tunnels": {"projects": ["p1"]}},
        "sourceCredentialId": "crd_1", "metadata": {"engine": "x"}, "aud": ["a"], "iss": "i", "sub": "s", "jti": "j",
    }))
    .unwrap();
    assert_eq!(verified.kind, TokenKind::App);
    assert_eq!(
        verified.identity,
        Identity::Client("c1".to_owned()),
        "an application speaks for itself"
    );
    assert_eq!(verified.user_id.as_deref(), Some("u1"));
    assert_eq!(verified.limits.expires_at(), Some(NOW + 60));
    assert_eq!(verified.credential_id.as_deref(), Some("crd_1"));
    assert!(verified.allows(Permission::TunnelsResourcesReadOnly));
    assert!(!verified.allows(Permission::TunnelsTunnelsCreateDelete));
    assert!(
        verified.limits.boundary().may_list("p1", None)
            && !verified.limits.boundary().may_list("p2", None)
    );
    assert!(!verified.is_expired(NOW + 59) && verified.is_expired(NOW + 60));
}

#[test]
fn permissions_that_are_absent_or_null_are_not_narrowed() {
    for claims in [good(), with("permissions", Value::Null)] {
        let verified = verify_claims(&claims).unwrap();
        assert!(
            verified.limits.permissions().is_none()
                && verified.allows(Permission::TunnelsTunnelsCreateDelete)
        );
        assert!(!verified.limits.boundary().has_tunnel_resource());
    }
    assert!(
        !verify_claims(&with("permissions", json!([])))
            .unwrap()
            .allows(Permission::TunnelsResourcesReadOnly)
    );
}

#[test]
fn a_pat_carries_its_endpoint_in_either_spelling() {
    for name in ["token_endpoint", "tokendpoint"] {
        let claims = json!({"type": "pat", "userId": "u1", name: "0a1b2c3d"});
        let verified = verify_claims(&claims).unwrap();
        assert_eq!(verified.credential_id.as_deref(), Some("0a1b2c3d"));
        assert_eq!(
            verified.limits.expires_at(),
            None,
            "a token may have no end"
        );
        for bad in [json!("0A1B2C3D"), json!("0a1b2c3"), json!(1), json!(null)] {
            let claims = json!({"type": "pat", "userId": "u1", name: bad});
            assert!(
                matches!(verify_claims(&claims), Err(TokenRefusal::Claim(_))),
                "{claims}"
            );
        }
    }
    let both = json!({"type": "pat", "userId": "u1", "token_endpoint": "0a1b2c3d", "tokendpoint": "0a1b2c3e"});
    assert_eq!(
        verify_claims(&both).unwrap_err(),
        TokenRefusal::Claim("token_endpoint")
    );
}

#[test]
fn an_expiry_has_no_leeway_and_the_other_times_have_five_seconds() {
    for (name, at, expected) in [
        ("exp", NOW + 1, None),
        ("exp", NOW, Some(TokenRefusal::Expired)),
        ("exp", NOW - 1, Some(TokenRefusal::Expired)),
        ("exp", 0, Some(TokenRefusal::Expired)),
        ("nbf", NOW + 5, None),
        ("nbf", NOW + 6, Some(TokenRefusal::NotYetValid)),
        ("iat", NOW + 5, None),
        ("iat", NOW + 6, Some(TokenRefusal::NotYetValid)),
        ("iat", 0, None),
    ] {
        assert_eq!(
            verify_claims(&with(name, json!(at))).err(),
            expected,
            "{name} {at}"
        );
    }
}

#[test]
fn a_time_is_an_integer_literal() {
    for name in ["exp", "nbf", "iat"] {
        for bad in [
            "1.5",
            "1800000100.0",
            "18e8",
            "\"1800000100\"",
            "-1",
            "null",
            "true",
            "[1]",
            "18446744073709551615",
        ] {
            let claims = format!(r#"{{"type":"auth","userId":"u1","{name}":{bad}}}"#);
            let token = raw_token(r#"{"alg":"HS256"}"#, &claims);
            assert_eq!(refusal(&token), TokenRefusal::Claim(name), "{claims}");
        }
    }
}

#[test]
fn a_claim_of_the_wrong_type_is_refused() {
    for (name, bad) in [
        ("userId", json!(1)),
        ("userId", json!("")),
        ("userId", json!("u\n1")),
        ("userId", json!("u".repeat(257))),
        ("userId", json!(null)),
        ("clientId", json!(["c1"])),
        ("permissions", json!("tunnels.resources.read-only")),
        ("permissions", json!([1])),
        ("permissions", json!({})),
        ("iss", json!(1)),
        ("sub", json!(null)),
        ("jti", json!({})),
        ("aud", json!(1)),
        ("aud", json!([1])),
        ("scope", json!(["a"])),
        ("client_id", json!(1)),
        ("resource", json!([])),
        ("sourceCredentialId", json!(1)),
        ("metadata", json!([])),
    ] {
        assert_eq!(
            verify_claims(&with(name, bad.clone())).unwrap_err(),
            TokenRefusal::Claim(name),
            "{name} {bad}"
        );
    }
    for bad in [
        json!("oauth"),
        json!("PAT"),
        json!(""),
        json!(1),
        json!(null),
        json!(["pat"]),
    ] {
        assert_eq!(
            verify_claims(&with("type", bad)).unwrap_err(),
            TokenRefusal::UnknownType
        );
    }
    assert_eq!(
        verify_claims(&json!({"userId": "u1"})).unwrap_err(),
        TokenRefusal::UnknownType
    );
    assert_eq!(
        verify_claims(&json!({"type": "auth", "sub": "u1"})).unwrap_err(),
        TokenRefusal::NoIdentity
    );
}

/// EN-7: an invalid boundary does not cause a 401, it refuses everything; this includes its older
/// locations.
#[test]
fn en_7_an_unreadable_boundary_refuses_everything() {
    for claims in [
        with("resources", Value::Null),
        with("resources", json!([])),
        with("resources", json!({"tunnels": {"projects": []}})),
        with("tunnelsGrants", json!([{"projects": ["p1"]}])),
        with("metadata", json!({"scopes": {}})),
    ] {
        let verified = verify_claims(&claims).unwrap();
        assert!(
            verified.limits.boundary().has_tunnel_resource()
                && !verified.limits.boundary().may_list("p1", None),
            "{claims}"
        );
    }
    let grants = verify_claims(&with("tunnelsGrants", json!({"projects": ["p1"]}))).unwrap();
    assert!(
        grants.limits.boundary().may_list("p1", None)
            && !grants.limits.boundary().may_list("p2", None)
    );
}

#[test]
fn duplicate_members_are_refused() {
    let claims = good().to_string();
    let twice = claims.replacen('{', r#"{"userId":"admin","#, 1);
    assert_eq!(
        refusal(&raw_token(r#"{"alg":"HS256"}"#, &twice)),
        TokenRefusal::Payload
    );
    let nested = claims.replacen('{', r#"{"resources":{"tunnels":1,"tunnels":2},"#, 1);
    assert_eq!(
        refusal(&raw_token(r#"{"alg":"HS256"}"#, &nested)),
        TokenRefusal::Payload
    );
    let header = r#"{"alg":"HS256","alg":"HS256"}"#;
    assert_eq!(
        refusal(&raw_token(header, &claims)),
        TokenRefusal::Header("not a JSON object")
    );
    for payload in ["[]", "1", "", "{", "{} "] {
        let token = raw_token(r#"{"alg":"HS256"}"#, payload);
        assert!(verify(&token, &keyring(), NOW).is_err(), "{payload}");
    }
}

#[test]
fn a_header_brings_no_key_and_no_extension() {
    for name in [
        "crit", "b64", "jwk", "jku", "x5u", "x5c", "x5t", "x5t#S256", "enc", "zip", "cty",
    ] {
        for value in [
            json!(true),
            json!([]),
            json!("https://keys.example"),
            json!(null),
        ] {
            let header = json!({"alg": "HS256", name: value}).to_string();
            assert_eq!(
                refusal(&raw_token(&header, &good().to_string())),
                TokenRefusal::Header(name)
            );
        }
    }
    for (header, why) in [
        (json!({}), "alg"),
        (json!({"alg": 1}), "alg"),
        (json!({"alg": "HS256", "typ": 1}), "typ"),
        (json!({"alg": "HS256", "typ": "logout+jwt"}), "typ"),
        (json!({"alg": "HS256", "kid": 1}), "kid"),
    ] {
        assert_eq!(
            refusal(&raw_token(&header.to_string(), &good().to_string())),
            TokenRefusal::Header(why)
        );
    }
    for typ in ["JWT", "jwt", "at+jwt", "application/at+jwt"] {
        let header = json!({"alg": "HS256", "typ": typ, "kid": "any"}).to_string();
        assert!(verify(&raw_token(&header, &good().to_string()), &keyring(), NOW).is_ok());
    }
}

#[test]
fn the_token_does_not_choose_the_algorithm() {
    for algorithm in [
        "none", "NONE", "hs256", "HS384", "RS256", "ES256", "EdDSA", "",
    ] {
        let header = json!({"alg": algorithm}).to_string();
        assert_eq!(
            refusal(&raw_token(&header, &good().to_string())),
            TokenRefusal::Signature,
            "{algorithm}"
        );
    }
    assert_eq!(
        verify(&token(&good()), &Keyring::new(), NOW).unwrap_err(),
        TokenRefusal::Signature
    );
}

#[test]
fn the_form_is_canonical() {
    let token = token(&good());
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    // 32 bytes take 43 characters: the last one has two bits that must be zero.
    let last = signature.chars().last().unwrap();
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let twin = alphabet
        .chars()
        .nth(alphabet.find(last).unwrap() + 1)
        .unwrap();
    let other_spelling = format!("{signed}.{}{twin}", &signature[..42]);
    for bad in [
        String::new(),
        "..".to_owned(),
        format!("{token}="),
        format!("{token}."),
        format!(".{token}"),
        format!("{token}\n"),
        format!(" {token}"),
        format!("{signed}."),
        format!("{header}..{signature}"),
        format!(".{payload}.{signature}"),
        format!("{header}.{payload}"),
        token.replace('.', "%2E"),
        other_spelling,
    ] {
        assert_eq!(refusal(&bad), TokenRefusal::Form, "{bad}");
    }
    assert_eq!(refusal(&"a".repeat(8 * 1024 + 1)), TokenRefusal::TooLong);
}

#[test]
fn the_longest_token_is_8_kib() {
    let of_length = |target: usize| {
        let mut filler = target / 2;
        loop {
            let token = token(&with("filler", json!("x".repeat(filler))));
            if token.len() >= target {
                return token;
            }
            filler += 1;
        }
    };
    let fits = of_length(8 * 1024 - 3);
    assert!(fits.len() <= 8 * 1024 && verify(&fits, &keyring(), NOW).is_ok());
    assert_eq!(refusal(&of_length(8 * 1024 + 1)), TokenRefusal::TooLong);
}

#[test]
fn a_digest_is_the_sha_256_of_the_text() {
    // FIPS 180-4, example of the one-block message.
    let wanted: u128 = 0xba78_16bf_8f01_cfea_4141_40de_5dae_2223;
    assert_eq!(digest("abc").first_chunk(), Some(&wanted.to_be_bytes()));
    let token = token(&good());
    assert_eq!(
        verify(&token, &keyring(), NOW).unwrap().digest,
        digest(&token)
    );
}

proptest! {
    #[test]
    fn one_changed_character_is_refused(index in 0_usize..200, with in "[A-Za-z0-9_.-]") {
        let token = token(&good());
        let index = index % token.len();
        let mut changed = token.clone();
        changed.replace_range(index..=index, &with);
        prop_assert_eq!(verify(&changed, &keyring(), NOW).is_ok(), changed == token);
    }

    #[test]
    fn any_signed_payload_is_answered(payload in r#"[{}\[\]:",a-z0-9.]{0,48}"#) {
        let token = raw_token(r#"{"alg":"HS256"}"#, &payload);
        prop_assert!(verify(&token, &keyring(), NOW).is_err());
    }
}
