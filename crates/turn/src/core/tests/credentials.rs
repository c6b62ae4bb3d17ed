//! Authentication of clients.

use super::*;

/// Makes a valid request invalid.
type Change = dyn Fn(&mut Caller);

/// TU-4: credentials are checked at Allocate and again at Refresh. Without a configured age, no
/// allocation outlives its credential.
#[test]
fn tu_4_credentials_are_valid_for_an_hour_at_most_and_until_they_expire() {
    let mut relay = Relay::new();
    let named = |exp: i64| format!("v1:{exp}:api:{ENDPOINT}:usr_1");
    for (left, expected) in [(0, 401), (-1, 401), (3601, 401), (i64::from(u32::MAX), 401)] {
        let mut caller = Caller::new(&mut relay, udp_client(), &named(START + left));
        assert_eq!(caller.allocate(&mut relay), expected, "{left} s");
    }
    assert!(relay.core.is_empty());
    let mut caller = Caller::new(&mut relay, udp_client(), &named(START + 700));
    assert_eq!(caller.allocate(&mut relay), 0);
    assert_eq!(
        caller.refresh(&mut relay, 3600),
        (0, 700),
        "no longer than the credential"
    );
    relay.advance(500);
    assert_eq!(caller.refresh(&mut relay, 600), (0, 200));
    relay.advance(199);
    caller.greet(&mut relay);
    assert_eq!(caller.refresh(&mut relay, 600), (0, 1));
    // The wall clock decides, whatever the monotonic clock is.
    relay.now.unix += 1;
    assert_eq!(caller.refresh(&mut relay, 600).0, 401, "expired");
    relay.advance(1);
    assert!(relay.core.is_empty());
    let user = named(relay.now.unix + 3600);
    let mut caller = Caller::new(&mut relay, udp_client(), &user);
    assert_eq!(caller.allocate(&mut relay), 0);
    relay.now.unix -= 1;
    assert_eq!(
        caller.refresh(&mut relay, 600).0,
        401,
        "3601 s left, as the clock was set back"
    );
}

/// A browser cannot replace the credential of a running call.
#[test]
fn an_allocation_may_outlive_its_username_up_to_the_configured_age() {
    let age = Millis::from_seconds(7200);
    let mut relay = Relay::aged(QUOTA, Bandwidth::default(), age);
    let user = format!("v1:{}:api:{ENDPOINT}:usr_1", START + 600);
    let mut caller = Caller::new(&mut relay, udp_client(), &user);
    assert_eq!(caller.allocate(&mut relay), 0);
    for _ in 0..13 {
        relay.advance(500);
        caller.greet(&mut relay);
        assert_eq!(caller.refresh(&mut relay, 600), (0, 600));
        assert_eq!(caller.permit(&mut relay, &["1.1.1.1:0"]), 0);
        // No new allocation, also not for the same user.
        let mut late = Caller::new(&mut relay, at("192.0.2.77:5000"), &user);
        let is_valid = relay.now.unix < START + 600;
        assert_eq!(late.allocate(&mut relay), if is_valid { 0 } else { 401 });
        if is_valid {
            assert_eq!(late.refresh(&mut relay, 0), (0, 0));
        }
    }
    relay.advance(500);
    caller.greet(&mut relay);
    assert_eq!(caller.refresh(&mut relay, 600), (0, 200));
    relay.advance(199);
    assert_eq!(caller.refresh(&mut relay, 600), (0, 1));
    relay.advance(1);
    assert_eq!(caller.refresh(&mut relay, 600).0, 437, "too old");
    assert!(relay.core.is_empty());
}

#[test]
fn an_allocation_that_outlives_its_username_still_needs_its_account() {
    let age = Millis::from_seconds(7200);
    let mut relay = Relay::aged(QUOTA, Bandwidth::default(), age);
    let user = format!("v1:{}:api:{ENDPOINT}:usr_1", START + 600);
    let mut caller = Caller::new(&mut relay, udp_client(), &user);
    assert_eq!(caller.allocate(&mut relay), 0);
    relay.advance(300);
    assert_eq!(caller.refresh(&mut relay, 600).0, 0);
    relay.advance(400);
    caller.greet(&mut relay);
    assert_eq!(caller.refresh(&mut relay, 600).0, 0);
    relay.authority.barred.lock().insert("usr_1".to_owned());
    assert_eq!(caller.refresh(&mut relay, 600).0, 403);
    assert_eq!(relay.core.len(), 1);
    relay.core.review(relay.now);
    assert!(relay.core.is_empty());
}

#[test]
fn clients_without_the_password_are_challenged() {
    let mut relay = Relay::new();
    let good = Caller::new(&mut relay, udp_client(), USER);
    let wrong: [(&str, &Change, u16); 6] = [
        ("password", &|caller| caller.password.push('x'), 401),
        (
            "username",
            &|caller| "user".clone_into(&mut caller.username),
            401,
        ),
        (
            "other user",
            &|caller| caller.username = USER.replace("usr_1", "usr_2"),
            401,
        ),
        (
            "kind",
            &|caller| caller.username = USER.replace("api", "pat"),
            401,
        ),
        (
            "realm",
            &|caller| "other".clone_into(&mut caller.realm),
            401,
        ),
        (
            "nonce",
            &|caller| "other".clone_into(&mut caller.nonce),
            438,
        ),
    ];
    for (what, change, expected) in wrong {
        let mut caller = good.clone();
        change(&mut caller);
        assert_eq!(caller.allocate(&mut relay), expected, "{what}");
    }
    for method in [REFRESH, CREATE_PERMISSION, CHANNEL_BIND] {
        let bytes = message(method, 3.into(), &[]);
        let PacketResult::Answer(answer) = relay.give(udp_client(), &bytes) else {
            panic!("an answer");
        };
        assert_eq!(code(&Message::from_bytes(&answer).unwrap()), 401);
    }
    assert!(relay.core.is_empty());
    assert_eq!(relay.core.shared.quotas.taken(), 0);
}

/// Missing attributes next to an integrity make a bad request.
#[test]
fn a_signature_with_missing_attributes_is_a_bad_request() {
    let mut relay = Relay::new();
    let caller = Caller::new(&mut relay, udp_client(), USER);
    let username = stun_types::attribute::Username::new(USER).unwrap();
    let (realm, nonce) = (
        Realm::new(REALM).unwrap(),
        Nonce::new(&caller.nonce).unwrap(),
    );
    let all: [&dyn AttributeWrite; 3] = [&username, &realm, &nonce];
    for missing in 0..3 {
        let kind = MessageType::from_class_method(MessageClass::Request, ALLOCATE);
        let mut out = Message::builder(kind, 3.into(), MessageWriteVec::new());
        for (index, attribute) in all.iter().enumerate() {
            if index != missing {
                out.add_attribute(*attribute).unwrap();
            }
        }
        caller.key().sign(Integrity::Sha1, &mut out);
        let PacketResult::Answer(answer) = relay.give(udp_client(), &out.finish()) else {
            panic!("an answer");
        };
        assert_eq!(code(&Message::from_bytes(&answer).unwrap()), 400);
    }
}

#[test]
fn a_nonce_becomes_stale_and_is_bound_to_its_source() {
    let mut relay = Relay::new();
    let mut caller = allocate_udp(&mut relay);
    let mut spoofer = caller.clone();
    spoofer.client = at("192.0.2.10:5000");
    assert_eq!(
        spoofer.allocate(&mut relay),
        438,
        "a source that got no answer"
    );
    relay.advance(599);
    assert_eq!(caller.refresh(&mut relay, 600).0, 0);
    relay.advance(1);
    let (code, answer) = caller.ask(&mut relay, REFRESH, &[&Lifetime::new(600)]);
    assert_eq!(code, 438);
    let answer = Message::from_bytes(&answer).unwrap();
    let nonce: Nonce = answer.attribute().unwrap();
    nonce.nonce().clone_into(&mut caller.nonce);
    assert_eq!(caller.refresh(&mut relay, 600).0, 0);
}

/// Unauthenticated clients get little data: a response of a few times their request, including the
/// headers of the packets (28 bytes of IPv4 and UDP).
#[test]
fn unauthenticated_clients_cannot_amplify_traffic() {
    let mut relay = Relay::new();
    let unknown: Vec<_> = (0x7000_u16..0x7100)
        .map(|kind| RawAttribute::new(AttributeType::new(kind), &[]))
        .collect();
    let unknown: Vec<&dyn AttributeWrite> = unknown.iter().map(|raw| raw as _).collect();
    let transport = RequestedTransport::new(17);
    let requests = [
        message(ALLOCATE, 1.into(), &[&transport]),
        message(ALLOCATE, 1.into(), &[]),
        message(REFRESH, 1.into(), &[]),
        message(CONNECT, 1.into(), &[]),
        message(CONNECTION_BIND, 1.into(), &[]),
        message(BINDING, 1.into(), &[]),
        message(BINDING, 1.into(), &unknown[..1]),
        message(BINDING, 1.into(), &unknown),
    ];
    for request in requests {
        let PacketResult::Answer(answer) = relay.give(udp_client(), &request) else {
            panic!("an answer");
        };
        let (sent, answered) = (request.len() + 28, answer.len() + 28);
        assert!(answered <= 4 * sent, "{answered} bytes for {sent}");
    }
    assert!(relay.core.is_empty(), "no state is kept");
}

#[test]
fn sha_256_and_its_downgrade_protection() {
    let mut relay = Relay::new();
    let mut caller = Caller::new(&mut relay, udp_client(), USER);
    caller.algorithm = KeyAlgorithm::Sha256;
    caller.integrity = Integrity::Sha256;
    assert_eq!(caller.allocate(&mut relay), 0);
    assert_eq!(caller.refresh(&mut relay, 600).0, 0);
    assert_eq!(caller.permit(&mut relay, &["1.1.1.1:0"]), 0);

    let sha256 = PasswordAlgorithmValue::SHA256;
    let md5 = PasswordAlgorithmValue::MD5;
    let caller = Caller::new(&mut relay, at("192.0.2.9:6000"), USER);
    let chosen = PasswordAlgorithm::new(sha256);
    let whole = PasswordAlgorithms::new(&[sha256, md5]);
    let turned = PasswordAlgorithms::new(&[md5, sha256]);
    let cut = PasswordAlgorithms::new(&[md5]);
    let refused: [&[&dyn AttributeWrite]; 4] =
        [&[&chosen], &[&whole], &[&turned, &chosen], &[&cut, &chosen]];
    for with in refused {
        let bytes = caller.signed(ALLOCATE, 9.into(), with);
        let PacketResult::Answer(answer) = relay.give(caller.client, &bytes) else {
            panic!("an answer");
        };
        assert_eq!(code(&Message::from_bytes(&answer).unwrap()), 400);
    }
}
