//! Manipulated tokens at a guarded tunnel. The table in `credentials` has a row for each kind.
//! These tests check that the edge uses that table for both positions of a token, and that no
//! service receives the request of a refused visitor.

use std::sync::Arc;

use client::Properties;
use engine::clock::{Clock as _, ManualClock};
use jiff::Timestamp;
use serde_json::json;
use testing::{TestEngine, Upstream};

use super::Table;
use crate::support::signed as signed_with;

const CLAIMS: &str = r#"{"type":"pat","userId":"ann"}"#;
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn a_manipulated_token_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let pair = rcgen::KeyPair::generate().unwrap();
    let public = pair.public_key_pem();
    let file = dir.path().join("key.pem");
    std::fs::write(&file, &public).unwrap();
    let keys = format!("[{}]", file.display());
    // The clock stands still, so that a row can be exactly at a time limit.
    let clock = Arc::new(ManualClock::at(Timestamp::now()));
    let now = clock.now().as_second();
    let engine = TestEngine::start_at("", &[("SVC_AUTH__JWT__PUBLIC_KEYS", &keys)], clock).await;
    let service = Upstream::http1().await;
    let guarded = Properties::http().token_auth(true);
    let tunnel = engine.publish_as(guarded, service.addr()).await;
    let host = tunnel.hostname();

    let good = engine.signed(HEADER, CLAIMS);
    let (signed, mac) = good.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let mine = |header: &str| engine.signed(header, CLAIMS);
    let saying = |claims: &str| {
        engine.signed(
            HEADER,
            &format!(r#"{{"type":"auth","userId":"ann",{claims}}}"#),
        )
    };
    let confused = |secret: &str| signed_with(&json!({"type": "pat", "userId": "ann"}), secret);
    // The token, and its statuses as a bearer and in the query.
    let rows: Vec<(&str, String, u16, u16)> = vec![
        ("no signature", format!("{signed}."), 401, 400),
        ("no signature part", signed.to_owned(), 401, 400),
        ("no claims", format!("{header}..{mac}"), 401, 400),
        ("no header", format!(".{claims}.{mac}"), 401, 400),
        ("a fourth part", format!("{good}.{mac}"), 401, 400),
        ("padding", format!("{good}="), 401, 400),
        (
            "the other alphabet",
            format!("{signed}.{}+", &mac[1..]),
            401,
            400,
        ),
        (
            "a short signature",
            format!("{signed}.{}", &mac[..40]),
            401,
            401,
        ),
        (
            "another's signature",
            format!("{signed}.{}", "A".repeat(43)),
            401,
            401,
        ),
        ("alg none", mine(r#"{"alg":"none"}"#), 401, 401),
        ("alg None", mine(r#"{"alg":"None"}"#), 401, 401),
        ("alg in lower case", mine(r#"{"alg":"hs256"}"#), 401, 401),
        ("alg of a public key", mine(r#"{"alg":"ES256"}"#), 401, 401),
        ("no alg", mine("{}"), 401, 401),
        (
            "alg twice",
            mine(r#"{"alg":"none","alg":"HS256"}"#),
            401,
            401,
        ),
        ("crit", mine(r#"{"alg":"HS256","crit":["exp"]}"#), 401, 401),
        (
            "b64",
            mine(r#"{"alg":"HS256","b64":false,"crit":["b64"]}"#),
            401,
            401,
        ),
        (
            "jwk",
            mine(r#"{"alg":"HS256","jwk":{"kty":"oct","k":"AA"}}"#),
            401,
            401,
        ),
        (
            "jku",
            mine(r#"{"alg":"HS256","jku":"https://a.example/k"}"#),
            401,
            401,
        ),
        (
            "x5u",
            mine(r#"{"alg":"HS256","x5u":"https://a.example/k"}"#),
            401,
            401,
        ),
        ("x5c", mine(r#"{"alg":"HS256","x5c":[]}"#), 401, 401),
        (
            "kid is a number",
            mine(r#"{"alg":"HS256","kid":1}"#),
            401,
            401,
        ),
        (
            "typ of another document",
            mine(r#"{"alg":"HS256","typ":"logout+jwt"}"#),
            401,
            401,
        ),
        (
            "nested",
            engine.signed(r#"{"alg":"HS256","cty":"JWT"}"#, &good),
            401,
            401,
        ),
        ("the public key is the secret", confused(&public), 401, 401),
        (
            "its body is",
            confused(public.lines().nth(1).unwrap()),
            401,
            401,
        ),
        ("no secret", confused("\0"), 401, 401),
        ("ended now", saying(&format!(r#""exp":{now}"#)), 401, 401),
        ("ended", saying(&format!(r#""exp":{}"#, now - 1)), 401, 401),
        (
            "begins in 6 s",
            saying(&format!(r#""nbf":{}"#, now + 6)),
            401,
            401,
        ),
        (
            "made in 6 s",
            saying(&format!(r#""iat":{}"#, now + 6)),
            401,
            401,
        ),
        (
            "a fraction",
            saying(&format!(r#""exp":{}.5"#, now + 60)),
            401,
            401,
        ),
        (
            "a text",
            saying(&format!(r#""exp":"{}""#, now + 60)),
            401,
            401,
        ),
        ("before 1970", saying(r#""nbf":-1"#), 401, 401),
        (
            "beyond all time",
            saying(r#""exp":18446744073709551616"#),
            401,
            401,
        ),
        ("a claim twice", saying(r#""userId":"root""#), 401, 401),
        ("aud is a number", saying(r#""aud":1"#), 401, 401),
        (
            "another type",
            engine.signed(HEADER, r#"{"type":"session","userId":"ann"}"#),
            401,
            401,
        ),
        (
            "nobody",
            engine.signed(HEADER, r#"{"type":"pat"}"#),
            401,
            401,
        ),
        ("not JSON", engine.signed(HEADER, "{"), 401, 401),
        ("a list", engine.signed(HEADER, "[]"), 401, 401),
        // The signature is valid, and the boundary allows nothing.
        (
            "a boundary of a wrong shape",
            saying(r#""resources":{"tunnels":[]}"#),
            403,
            403,
        ),
        (
            "a boundary that is null",
            saying(r#""resources":null"#),
            403,
            403,
        ),
        (
            "permissions of nothing",
            saying(r#""permissions":[]"#),
            403,
            403,
        ),
    ];
    let mut table = Table::default();
    for (case, token, as_bearer, in_query) in &rows {
        let mut visitor = engine.visitor().http1(host).await;
        let bearer = format!("Authorization: Bearer {token}\r\n");
        visitor.request("GET", "/", host, &bearer).await;
        let response = visitor.answer().await;
        table.row([case, "as a bearer"], &response.status, as_bearer);
        assert!(
            !response.text().contains(&**token),
            "{case}: the answer has it"
        );
        let target = format!("/?svc.token={token}");
        let response = engine.visitor().http1(host).await.get(&target, host).await;
        table.row([case, "in the query"], &response.status, in_query);
        let response = engine.visitor().h2(host).await.get(&target, host).await;
        table.row([case, "in the query, HTTP/2"], &response.status, in_query);
    }
    assert_eq!(service.accepted(), 0, "the service was contacted");
    // Just outside each time limit.
    for token in [
        good.clone(),
        saying(&format!(r#""exp":{}"#, now + 1)),
        saying(&format!(r#""nbf":{},"iat":{}"#, now + 5, now + 5)),
        saying(r#""aud":["a","b"]"#),
        mine(r#"{"alg":"HS256","kid":"../../dev/null"}"#),
    ] {
        let target = format!("/?svc.token={token}");
        let response = engine.visitor().http1(host).await.get(&target, host).await;
        table.row([&token], &response.status, &200);
    }
    table.assert_no_failures();
}
