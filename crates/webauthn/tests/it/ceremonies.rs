//! Registration and use of passkeys, valid and malicious.

use webauthn::{Assertion, CeremonyError, NewPasskey, Registration, RelyingParty};

use crate::authenticator::{AssertionResponse, Authenticator, Key, UP, UV};

const ORIGIN: &str = "https://svc.example:8443";
const CHALLENGE: &[u8] = b"sixteen or more bytes";

fn party() -> RelyingParty {
    RelyingParty::for_base_url(ORIGIN).unwrap()
}

fn is_ours(challenge: &[u8]) -> bool {
    challenge == CHALLENGE
}

fn register(client_data: &[u8], attestation: &[u8]) -> Result<NewPasskey, CeremonyError> {
    let sent = Registration {
        client_data,
        attestation,
    };
    party().register(sent, is_ours)
}

fn verify(
    key: &[u8],
    response: &AssertionResponse,
) -> Result<webauthn::PasskeyAssertion, CeremonyError> {
    let sent = Assertion {
        client_data: &response.client_data,
        authenticator_data: &response.authenticator_data,
        signature: &response.signature,
    };
    party().verify(key, sent, is_ours)
}

/// The reason for refusing a registration.
fn refused(client_data: &[u8], attestation: &[u8]) -> &'static str {
    register(client_data, attestation).unwrap_err().0
}

#[test]
fn a_key_of_each_kind_is_registered_and_used() {
    for key in Key::all() {
        let mut device = Authenticator::at(ORIGIN, key);
        let client_data = device.client_data("webauthn.create", CHALLENGE);
        let registered = register(&client_data, &device.attestation()).unwrap();
        assert_eq!(registered.credential_id, device.credential_id);
        assert_eq!(registered.public_key, device.key.cose());
        assert_eq!((registered.sign_count, registered.user_verified), (1, true));
        device.sign_count = 2;
        device.flags = UP;
        let response = verify(&registered.public_key, &device.show(CHALLENGE)).unwrap();
        assert_eq!((response.sign_count, response.user_verified), (2, false));
    }
}

#[test]
fn a_response_for_another_origin_or_purpose_is_refused() {
    let device = Authenticator::at(ORIGIN, Key::es256());
    let key = device.key.cose();
    let why = |response: &AssertionResponse| verify(&key, response).unwrap_err().0;
    let mut elsewhere = Authenticator::at(ORIGIN, Key::es256());
    for origin in [
        "https://svc.example",
        "http://svc.example:8443",
        "https://svc.example:8443/",
        "https://SVC.example:8443",
        "https://evil.example",
    ] {
        elsewhere.origin = origin.to_owned();
        let client_data = elsewhere.client_data("webauthn.get", CHALLENGE);
        let response = device.sign(client_data, device.authenticator_data(UP));
        assert_eq!(why(&response), "the requesting page has another origin");
        let client_data = elsewhere.client_data("webauthn.create", CHALLENGE);
        assert_eq!(
            refused(&client_data, &device.attestation()),
            "the requesting page has another origin"
        );
    }
    let mut other_host = Authenticator::at(ORIGIN, Key::es256());
    other_host.rp_id = "evil.example".to_owned();
    let client_data = device.client_data("webauthn.get", CHALLENGE);
    let response = device.sign(client_data.clone(), other_host.authenticator_data(UP));
    assert_eq!(why(&response), "the passkey is for another host");
    let response = device.show(b"another challenge");
    assert_eq!(why(&response), "the challenge is unknown or too old");
    let create = device.client_data("webauthn.create", CHALLENGE);
    let response = device.sign(create.clone(), device.authenticator_data(UP));
    assert_eq!(why(&response), "the response is for another operation");
    assert_eq!(
        refused(&client_data, &device.attestation()),
        "the response is for another operation"
    );
}

#[test]
fn absent_users_and_contradicting_flags_are_refused() {
    let device = Authenticator::at(ORIGIN, Key::es256());
    let key = device.key.cose();
    let client_data = device.client_data("webauthn.get", CHALLENGE);
    for (flags, why) in [
        (0, "the user was not present"),
        (UV, "the user was not present"),
        (UP | 0x10, "the passkey is backed up although it may not be"),
        (UP | 0x40, "the authenticator data is truncated"),
        (UP | 0x80, "the CBOR is malformed"),
    ] {
        let response = device.sign(client_data.clone(), device.authenticator_data(flags));
        assert_eq!(verify(&key, &response).unwrap_err().0, why, "{flags:#x}");
    }
    let copied = device.authenticator_data(UP | 0x18);
    assert!(verify(&key, &device.sign(client_data, copied)).is_ok());
}

#[test]
fn a_signature_of_another_key_or_over_other_data_is_refused() {
    for key in Key::all() {
        let device = Authenticator::at(ORIGIN, key);
        let key = device.key.cose();
        let valid = device.show(CHALLENGE);
        assert!(verify(&key, &valid).is_ok());
        let why = |response: &AssertionResponse| verify(&key, response).unwrap_err().0;
        let mut counter = valid.clone();
        counter.authenticator_data[36] ^= 1;
        assert_eq!(why(&counter), "the signature does not match the key");
        let mut signature = valid.clone();
        *signature.signature.last_mut().unwrap() ^= 1;
        assert_eq!(why(&signature), "the signature does not match the key");
        signature.signature.clear();
        assert_eq!(why(&signature), "the signature does not match the key");
        let mut client_data = valid.clone();
        let at = client_data.client_data.len() - 2;
        client_data.client_data[at] = b'2';
        assert_eq!(why(&client_data), "the signature does not match the key");
        let another = Authenticator::at(ORIGIN, Key::es256());
        assert!(verify(&another.key.cose(), &valid).is_err());
    }
}

#[test]
fn client_data_is_parsed_strictly() {
    let device = Authenticator::at(ORIGIN, Key::es256());
    let attestation = device.attestation();
    let valid = device.client_data("webauthn.create", CHALLENGE);
    let valid = String::from_utf8(valid).unwrap();
    for (from, to) in [
        ("\"crossOrigin\":false", "\"crossOrigin\":true"),
        ("\"crossOrigin\":false", "\"crossOrigin\":0"),
        ("\"another\":1", "\"topOrigin\":\"https://evil.example\""),
        ("\"another\":1", "\"origin\":\"https://svc.example:8443\""),
        ("\"another\":1", "\"type\":\"webauthn.create\""),
        ("\"type\":\"webauthn.create\"", "\"type\":1"),
        ("\"challenge\":\"", "\"challenge\":\"="),
        ("\"another\":1}", "\"another\":1"),
        ("\"another\":1}", "\"another\":1}x"),
        ("\"another\":1", "\"another\":[[[[1]]]]"),
    ] {
        let bent = valid.replacen(from, to, 1);
        assert_ne!(bent, valid);
        assert!(register(bent.as_bytes(), &attestation).is_err(), "{bent}");
    }
    let plain = valid.replace(",\"crossOrigin\":false", "");
    assert!(register(plain.as_bytes(), &attestation).is_ok());
    let long = valid.replace(
        "\"another\":1",
        &format!("\"another\":\"{}\"", "a".repeat(9000)),
    );
    assert!(register(long.as_bytes(), &attestation).is_err());
}

#[test]
fn an_attestation_object_is_complete_and_has_no_extra_bytes() {
    let device = Authenticator::at(ORIGIN, Key::es256());
    let client_data = device.client_data("webauthn.create", CHALLENGE);
    let good = device.attestation();
    assert!(register(&client_data, &good).is_ok());
    for length in 0..good.len() {
        assert!(register(&client_data, &good[..length]).is_err(), "{length}");
    }
    let longer = [&good[..], &[0]].concat();
    assert_eq!(
        refused(&client_data, &longer),
        "the attestation object is malformed"
    );
    let twice = [b"\xa4\x63fmt\x64none".as_slice(), &good[1..]].concat();
    assert_eq!(
        refused(&client_data, &twice),
        "the attestation object is malformed"
    );
    // An attestation without a credential cannot be registered.
    let mut bare = b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58\x25".to_vec();
    bare.extend(device.authenticator_data(UP));
    assert_eq!(refused(&client_data, &bare), "the credential is missing");
    // An unrequested attestation statement is ignored.
    let stated = good
        .windows(9)
        .position(|window| window == b"\x67attStmt\xa0")
        .unwrap()
        + 8;
    let mut stated_too = good[..stated].to_vec();
    stated_too.extend(b"\xa2\x63alg\x26\x63sig\x41\x00");
    stated_too.extend(&good[stated + 1..]);
    assert!(register(&client_data, &stated_too).is_ok());
}

#[test]
fn unsupported_keys_are_refused() {
    let mut device = Authenticator::at(ORIGIN, Key::es256());
    let client_data = device.client_data("webauthn.create", CHALLENGE);
    let valid = device.attestation();
    let key = device.key.cose();
    let start = valid.len() - key.len();
    for (at, byte) in [
        (0, 0xa4), // a member less
        (2, 0x01), // another type of key
        (4, 0x27), // another algorithm
        (6, 0x02), // another curve
        (5, 0x01), // a member twice
        (5, 0x04), // a member that no key has
    ] {
        let mut bent = valid.clone();
        bent[start + at] = byte;
        assert!(register(&client_data, &bent).is_err(), "{at}");
    }
    device.credential_id.clear();
    assert!(register(&client_data, &device.attestation()).is_err());
    device.credential_id = vec![1; 1024];
    assert!(register(&client_data, &device.attestation()).is_err());
    device.credential_id.pop();
    assert!(register(&client_data, &device.attestation()).is_ok());
    // A key with a point that is not on the curve verifies no signature.
    let mut off = key;
    off[20] ^= 1;
    assert!(verify(&off, &device.show(CHALLENGE)).is_err());
}

#[test]
fn passkeys_are_bound_to_hosts_that_browsers_trust() {
    for (base_url, id) in [
        ("https://svc.example", Some("svc.example")),
        ("https://svc.example:8443", Some("svc.example")),
        ("http://localhost:8080", Some("localhost")),
        ("http://svc.localhost", Some("svc.localhost")),
        ("http://svc.example", None),
        ("http://127.0.0.1:8080", None),
        ("https://192.0.2.1", None),
        ("https://[2001:db8::1]:8443", None),
        ("svc.example", None),
    ] {
        let party = RelyingParty::for_base_url(base_url);
        assert_eq!(party.as_ref().map(RelyingParty::id), id, "{base_url}");
    }
}
