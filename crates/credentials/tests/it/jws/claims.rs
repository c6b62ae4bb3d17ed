//! Payloads with a valid signature.

use super::*;

#[test]
fn times_at_their_limits() {
    let mut table = Table::default();
    let claim = |name: &'static str| Err(TokenRefusal::Claim(name));
    let (expired, early) = (Err(TokenRefusal::Expired), Err(TokenRefusal::NotYetValid));
    let far = i64::MAX;
    for (claims, expected) in [
        (format!(r#""exp":{}"#, NOW + 1), Ok(())),
        (format!(r#""exp":{NOW}"#), expired),
        (format!(r#""exp":{}"#, NOW - 1), expired),
        (r#""exp":0"#.to_owned(), expired),
        (format!(r#""exp":{far}"#), Ok(())),
        (r#""exp":9223372036854775808"#.to_owned(), claim("exp")),
        (r#""exp":18446744073709551615"#.to_owned(), claim("exp")),
        (r#""exp":18446744073709551616"#.to_owned(), claim("exp")),
        (
            format!(r#""exp":{}"#, "9".repeat(400)),
            Err(TokenRefusal::Payload),
        ),
        (r#""exp":1e400"#.to_owned(), Err(TokenRefusal::Payload)),
        // A time in milliseconds is read as seconds, far in the future.
        (format!(r#""exp":{NOW}000"#), Ok(())),
        (format!(r#""nbf":{NOW}"#), Ok(())),
        (format!(r#""nbf":{}"#, NOW + 5), Ok(())),
        (format!(r#""nbf":{}"#, NOW + 6), early),
        (format!(r#""nbf":{far}"#), early),
        (r#""nbf":0"#.to_owned(), Ok(())),
        (format!(r#""iat":{}"#, NOW + 5), Ok(())),
        (format!(r#""iat":{}"#, NOW + 6), early),
        (format!(r#""iat":{far}"#), early),
        (r#""iat":0"#.to_owned(), Ok(())),
        // The expiry has passed before the start has.
        (format!(r#""iat":{},"exp":{}"#, NOW + 60, NOW + 1), early),
        (format!(r#""iat":{NOW},"exp":{NOW}"#), expired),
        (format!(r#""nbf":{},"exp":{}"#, NOW + 60, NOW - 60), expired),
    ] {
        let claims = format!(r#"{{"type":"auth","userId":"ann",{claims}}}"#);
        table.row(
            &claims,
            &judged(&token(HEADER, &claims), &shared()),
            &expected,
        );
    }
    for name in ["exp", "nbf", "iat"] {
        for value in [
            "-1",
            "-0",
            "-1800000000",
            "1800000100.0",
            "1800000100.5",
            "18e8",
            "1.8e9",
            "18E+8",
            "null",
            "true",
            "\"\"",
            "\"1800000100\"",
            "\"never\"",
            "\"2030-01-01T00:00:00Z\"",
            "[]",
            "[1800000100]",
            "{}",
        ] {
            let claims = format!(r#"{{"type":"auth","userId":"ann","{name}":{value}}}"#);
            let was = judged(&token(HEADER, &claims), &shared());
            table.row(&claims, &was, &claim(name));
        }
        for value in [
            "01800000100",
            "+1",
            "0x7fffffff",
            "1_800_000_100",
            "NaN",
            "Infinity",
            "",
        ] {
            let claims = format!(r#"{{"type":"auth","userId":"ann","{name}":{value}}}"#);
            let was = judged(&token(HEADER, &claims), &shared());
            table.row(&claims, &was, &Err(TokenRefusal::Payload));
        }
    }
    table.holds();
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn each_claim_has_its_type_and_appears_once() {
    let mut table = Table::default();
    let mut row = |claims: &str, expected: Result<(), TokenRefusal>| {
        table.row(
            claims,
            &judged(&token(HEADER, claims), &shared()),
            &expected,
        );
    };
    let values = [
        "null", "true", "1", "1.5", "\"x\"", "[]", "[1]", "[\"x\"]", "{}",
    ];
    for (name, good) in [
        ("iss", &["\"x\""][..]),
        ("sub", &["\"x\""]),
        ("jti", &["\"x\""]),
        ("client_id", &["\"x\""]),
        ("resource", &["\"x\""]),
        ("scope", &["\"x\""]),
        ("sourceCredentialId", &["\"x\""]),
        ("aud", &["\"x\"", "[]", "[\"x\"]"]),
        ("permissions", &["null", "[]", "[\"x\"]"]),
        ("metadata", &["{}"]),
        ("clientId", &["\"x\""]),
        ("token_endpoint", &[]),
    ] {
        for value in values {
            let expected = if good.contains(&value) {
                Ok(())
            } else {
                Err(TokenRefusal::Claim(name))
            };
            let claims = format!(r#"{{"type":"pat","userId":"ann","{name}":{value}}}"#);
            row(&claims, expected);
            // Duplicates are always refused, even with the same value.
            let claims =
                format!(r#"{{"type":"pat","userId":"ann","{name}":{value},"{name}":{value}}}"#);
            row(&claims, Err(TokenRefusal::Payload));
        }
    }
    for value in values {
        row(
            &format!(r#"{{"userId":"ann","type":{value}}}"#),
            Err(TokenRefusal::UnknownType),
        );
        let expected = if value == "\"x\"" {
            Ok(())
        } else {
            Err(TokenRefusal::Claim("userId"))
        };
        row(&format!(r#"{{"type":"pat","userId":{value}}}"#), expected);
    }
    for aud in [r#"["a","b"]"#, r#"["a","a"]"#, r#""""#, r#"[""]"#] {
        row(
            &format!(r#"{{"type":"pat","userId":"ann","aud":{aud}}}"#),
            Ok(()),
        );
    }
    for aud in [
        r#"["a",1]"#,
        r#"["a",null]"#,
        r#"["a",["b"]]"#,
        r#"[["a"]]"#,
        r#"{"0":"a"}"#,
    ] {
        let claims = format!(r#"{{"type":"pat","userId":"ann","aud":{aud}}}"#);
        row(&claims, Err(TokenRefusal::Claim("aud")));
    }
    for kind in [
        "PAT", "Pat", "pat ", "oauth", "session", "refresh", "id", "", "auth,pat",
    ] {
        row(
            &format!(r#"{{"type":"{kind}","userId":"ann"}}"#),
            Err(TokenRefusal::UnknownType),
        );
    }
    for id in [
        r#""""#,
        "\"\\u0000\"",
        "\"a\\nb\"",
        "\"a\\r\\nb: c\"",
        "\"\\u0085\"",
        "\"\\u007f\"",
    ] {
        row(
            &format!(r#"{{"type":"pat","userId":{id}}}"#),
            Err(TokenRefusal::Claim("userId")),
        );
        row(
            &format!(r#"{{"type":"app","clientId":{id}}}"#),
            Err(TokenRefusal::Claim("clientId")),
        );
    }
    row(
        &format!(r#"{{"type":"pat","userId":"{}"}}"#, "a".repeat(256)),
        Ok(()),
    );
    row(
        &format!(r#"{{"type":"pat","userId":"{}"}}"#, "a".repeat(257)),
        Err(TokenRefusal::Claim("userId")),
    );
    row(r#"{"type":"pat"}"#, Err(TokenRefusal::NoIdentity));
    row(
        r#"{"type":"pat","sub":"ann","user_id":"ann","userid":"ann"}"#,
        Err(TokenRefusal::NoIdentity),
    );
    row(
        r#"{"type":"pat","userId":"ann","\u0075serId":"root"}"#,
        Err(TokenRefusal::Payload),
    );
    row(
        r#"{"type":"pat","type":"pat","userId":"ann"}"#,
        Err(TokenRefusal::Payload),
    );
    row(
        r#"{"type":"pat","userId":"ann","x":{"a":1,"a":1}}"#,
        Err(TokenRefusal::Payload),
    );
    for payload in [
        "null",
        "[]",
        "\"\"",
        "1",
        "{",
        "{}{}",
        "{\"type\":\"pat\",\"userId\":\"ann\"},",
        "\0",
        "{\"type\":\"pat\",\"userId\":\"\u{0}\"}",
        "\u{feff}{}",
        "{\"type\":\"pat\",\"userId\":\"\\ud800\"}",
    ] {
        row(payload, Err(TokenRefusal::Payload));
    }
    let deep = |levels: usize| {
        let value = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"type":"pat","userId":"ann","x":{value}}}"#)
    };
    row(&deep(39), Ok(()));
    row(&deep(40), Err(TokenRefusal::Payload));
    row(&deep(2500), Err(TokenRefusal::Payload));
    let wide = format!(
        r#"{{"type":"pat","userId":"ann"{}}}"#,
        r#","x":{}"#.repeat(500)
    );
    row(&wide, Err(TokenRefusal::Payload));
    table.holds();
}
