//! The parsers that unauthenticated clients reach, with input from proptest. Each target of `fuzz/`
//! gets the inputs kept in `tests/corpus`, arbitrary bytes, and nearly valid text.

use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::test_runner::{Config, RngSeed};

#[path = "../fuzz_targets/mod.rs"]
mod fuzz_targets;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn kept_inputs_are_read_or_refused() {
    replay::replay("control_query", fuzz_targets::control_query);
    replay::replay("control_body", fuzz_targets::control_body);
    replay::replay("control_cookie", fuzz_targets::control_cookie);
    replay::replay("control_email", fuzz_targets::control_email);
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..200)
}

/// Text of these pieces, sometimes with arbitrary text in between.
fn text(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => proptest::sample::select(pieces).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..4),
        1 => Just(b"%".to_vec()),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

const SECRET: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

proptest! {
    #![proptest_config(Config {
        cases: 500,
        rng_seed: RngSeed::Fixed(7),
        failure_persistence: None,
        ..Config::default()
    })]

    #[test]
    fn any_query_is_read_or_refused(
        any in bytes(),
        near in text(&["page", "pageSize", "q", "=", "&", "1", "100", "101", "0", "%20", "+", "é"]),
    ) {
        fuzz_targets::control_query(&any);
        fuzz_targets::control_query(&near);
    }

    #[test]
    fn any_body_is_read_or_refused(
        any in bytes(),
        near in text(&[
            "{", "}", "[", "]", ",", ":", "null", "true", "1", "60", "\"name\"", "\"ttlSeconds\"",
            "\"trustedIps\"", "\"permissions\"", "\"geoIp\"", "\"allow\"", "\"type\"", "\"pat\"",
            "{\"name\":\"a\"}", "{\"ttlSeconds\":60}", "{\"overlapSeconds\":0}",
            "{\"permissions\":null}", "{\"geoIp\":{\"deny\":[\"AQ\"]}}",
        ]),
    ) {
        fuzz_targets::control_body(&any);
        fuzz_targets::control_body(&near);
    }

    #[test]
    fn any_cookie_is_read_or_none(
        any in bytes(),
        near in text(&["__Host-svc_session=", "svc_session=", SECRET, "; ", ";", "\n", "a=b", "="]),
    ) {
        fuzz_targets::control_cookie(&any);
        fuzz_targets::control_cookie(&near);
    }

    #[test]
    fn any_mail_address_is_read_or_refused(
        any in bytes(),
        near in text(&["ada", "@", "example", ".", "com", "-", "+", " ", "\"", "<", "Ä", "\r\n"]),
    ) {
        fuzz_targets::control_email(&any);
        fuzz_targets::control_email(&near);
    }
}
