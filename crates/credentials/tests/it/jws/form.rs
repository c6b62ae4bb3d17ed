//! The compact form, its base64url, and the header.

use serde_json::{Value, json};

use super::*;

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn a_token_is_three_parts_in_their_canonical_encoding() {
    let good = token(HEADER, CLAIMS);
    let parts: Vec<&str> = good.split('.').collect();
    let [header, claims, mac] = parts[..] else {
        panic!("three parts")
    };
    // The last character of 32 bytes has two unused bits.
    let twin = |part: &str| {
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let (rest, last) = part.split_at(part.len() - 1);
        let next = alphabet.find(last).unwrap() + 1;
        format!("{rest}{}", &alphabet[next..=next])
    };
    // A signature over another encoding is valid for that encoding, which is not a token.
    let resigned = |header: &str, claims: &str| {
        let text = format!("{header}.{claims}");
        let mac = encoded(super::mac(SECRET.as_bytes(), &text));
        format!("{text}.{mac}")
    };
    let json = format!(r#"{{"payload":"{claims}","protected":"{header}","signature":"{mac}"}}"#);
    let nested = token(r#"{"alg":"HS256","cty":"JWT"}"#, &good);
    let inner = token(HEADER, &good);
    let mut table = Table::default();
    table.row("as it should be", &judged(&good, &shared()), &Ok(()));
    table.row(
        "signed again",
        &judged(&resigned(header, claims), &shared()),
        &Ok(()),
    );
    for text in [
        // Parts that are missing, empty, or too many.
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        "...".to_owned(),
        header.to_owned(),
        format!("{header}."),
        format!("{header}.."),
        format!("{header}.{claims}"),
        format!("{header}.{claims}."),
        format!("{header}..{mac}"),
        format!(".{claims}.{mac}"),
        format!("..{mac}"),
        format!("{claims}.{mac}"),
        format!("{good}."),
        format!(".{good}"),
        format!("{good}.{mac}"),
        format!("{good}.."),
        format!("{header}.{header}.{claims}.{mac}.{mac}"),
        // Other serialisations of the same token.
        json.clone(),
        encoded(&json),
        format!("[\"{good}\"]"),
        format!("\"{good}\""),
        format!("Bearer {good}"),
        // Additional bytes around it and inside.
        format!(" {good}"),
        format!("{good} "),
        format!("{good}\n"),
        format!("{good}\r\n"),
        format!("{good}\0"),
        format!("\u{feff}{good}"),
        format!("{header}. {claims}.{mac}"),
        format!("{header}.\n{claims}.{mac}"),
        format!("{header}\t.{claims}.{mac}"),
        good.replace('.', "%2E"),
        good.replace('.', "\u{ff0e}"),
        good.replacen('e', "%65", 1),
        // Base64url with padding, in other alphabets, or with unused bits set.
        format!("{good}="),
        format!("{good}=="),
        format!("{header}=.{claims}.{mac}"),
        format!("{header}.{claims}==.{mac}"),
        format!("{header}.{claims}.{}", twin(mac)),
        format!("{header}.{claims}.{}*{}", &mac[..4], &mac[5..]),
        format!("{header}.{claims}.{}+{}", &mac[..4], &mac[5..]),
        format!("{header}.{claims}.{}/{}", &mac[..4], &mac[5..]),
        format!("{header}.{claims}.{}\u{e9}{}", &mac[..4], &mac[5..]),
        resigned(&format!("{header}="), claims),
        resigned(header, &format!("{claims}=")),
        resigned(header, &twin(claims)),
        resigned(&format!(" {header}"), claims),
        resigned(header, &format!("{} {}", &claims[..8], &claims[8..])),
        resigned(header, &format!("{}\n{}", &claims[..8], &claims[8..])),
        resigned(header, ""),
        resigned("", claims),
    ] {
        table.row(&text, &judged(&text, &shared()), &Err(TokenRefusal::Form));
    }
    table.row(
        "nested, says so",
        &judged(&nested, &shared()),
        &Err(TokenRefusal::Header("cty")),
    );
    table.row(
        "nested",
        &judged(&inner, &shared()),
        &Err(TokenRefusal::Payload),
    );
    table.row(
        "a character more",
        &judged(&format!("{good}A"), &shared()),
        &Err(TokenRefusal::Signature),
    );
    table.row(
        "long",
        &judged(&"a".repeat(8193), &shared()),
        &Err(TokenRefusal::TooLong),
    );
    table.row(
        "huge",
        &judged(&"a.b.c".repeat(1 << 20), &shared()),
        &Err(TokenRefusal::TooLong),
    );
    table.holds();
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn a_header_is_one_plain_object_without_key_references() {
    let mut table = Table::default();
    let mut row = |header: &str, expected: Result<(), TokenRefusal>| {
        table.row(
            header,
            &judged(&token(header, CLAIMS), &shared()),
            &expected,
        );
    };
    let no_object = || Err(TokenRefusal::Header("not a JSON object"));
    for good in [
        HEADER,
        r#" { "alg" : "HS256" } "#,
        "{\"alg\":\"HS256\",\r\n \"typ\":\"JWT\"}",
        r#"{"\u0061lg":"HS\u0032\u00356"}"#,
        r#"{"alg":"HS256","unknown":{"a":[1,2,{"b":null}]}}"#,
        r#"{"alg":"HS256","kid":""}"#,
    ] {
        row(good, Ok(()));
    }
    for bad in [
        "null",
        "true",
        "1",
        "\"HS256\"",
        "[]",
        r#"["alg","HS256"]"#,
        "{",
        "}",
        "{}{}",
        r#"{"alg":"HS256"}}"#,
        r#"{"alg":"HS256",}"#,
        r"{'alg':'HS256'}",
        r#"{alg:"HS256"}"#,
        r#"{"alg":"HS256"}//"#,
        "{\"alg\":\"HS256\"}\0",
        "\u{feff}{\"alg\":\"HS256\"}",
        "{\"alg\":\"HS256\",\"x\":\"\u{1}\"}",
        // Duplicates, of which parsers may use the first or the last.
        r#"{"alg":"HS256","alg":"HS256"}"#,
        r#"{"alg":"none","alg":"HS256"}"#,
        r#"{"alg":"HS256","alg":"none"}"#,
        r#"{"alg":"HS256","\u0061lg":"none"}"#,
        r#"{"alg":"HS256","kid":"a","kid":"b"}"#,
        r#"{"alg":"HS256","typ":"JWT","typ":"JWT"}"#,
        r#"{"alg":"HS256","x":{"a":1,"a":2}}"#,
    ] {
        row(bad, no_object());
    }
    row("{}", Err(TokenRefusal::Header("alg")));
    for value in ["1", "null", "true", r#"["HS256"]"#, r#"{"HS256":1}"#] {
        row(
            &format!(r#"{{"alg":{value}}}"#),
            Err(TokenRefusal::Header("alg")),
        );
        row(
            &format!(r#"{{"alg":"HS256","kid":{value}}}"#),
            Err(TokenRefusal::Header("kid")),
        );
        row(
            &format!(r#"{{"alg":"HS256","typ":{value}}}"#),
            Err(TokenRefusal::Header("typ")),
        );
    }
    for typ in [
        "JWE",
        "JOSE",
        "JOSE+JSON",
        "dpop+jwt",
        "logout+jwt",
        "secevent+jwt",
        "",
        "JWT ",
    ] {
        let header = json!({"alg": "HS256", "typ": typ}).to_string();
        row(&header, Err(TokenRefusal::Header("typ")));
    }
    // The key determines the algorithm.
    for alg in [
        "none",
        "None",
        "NONE",
        "nOnE",
        "none ",
        "",
        "hs256",
        "Hs256",
        "HS256 ",
        " HS256",
        "HS256\u{0}",
        "HS384",
        "HS512",
        "RS256",
        "PS256",
        "ES256",
        "ES256K",
        "EdDSA",
        "Ed25519",
        "HMAC",
        "HmacSHA256",
        "A256KW",
        "dir",
        "PBES2-HS256+A128KW",
        "HS256,none",
    ] {
        let header = json!({"alg": alg}).to_string();
        row(&header, Err(TokenRefusal::Signature));
    }
    // Embedded keys, key addresses, extensions and encryption members, with any value.
    for name in [
        "jwk", "jku", "x5u", "x5c", "x5t", "x5t#S256", "crit", "b64", "enc", "zip", "cty",
    ] {
        for value in [
            json!(null),
            json!(false),
            json!(0),
            json!(""),
            json!([]),
            json!({}),
            json!(["exp"]),
            json!("https://attacker.example/keys"),
            json!("file:///etc/passwd"),
            json!({"kty": "oct", "k": encoded(SECRET)}),
        ] {
            let header = json!({"alg": "HS256", name: value}).to_string();
            row(&header, Err(TokenRefusal::Header(name)));
        }
    }
    let deep = |levels: usize| {
        let value = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"alg":"HS256","x":{value}}}"#)
    };
    row(&deep(39), Ok(()));
    row(&deep(40), no_object());
    row(&deep(2000), no_object());
    table.holds();
}

/// A token without a signature is invalid, whatever its header states.
#[test]
fn an_empty_signature_is_refused() {
    let mut table = Table::default();
    for alg in ["none", "None", "NONE", "HS256"] {
        let header = json!({"alg": alg}).to_string();
        let signed = signed(&header, CLAIMS);
        for (signature, expected) in [
            (String::new(), TokenRefusal::Form),
            ("AA".to_owned(), TokenRefusal::Signature),
            (encoded([0; 32]), TokenRefusal::Signature),
            (encoded(mac(b"", &signed)), TokenRefusal::Signature),
            (encoded(mac(b"\0", &signed)), TokenRefusal::Signature),
        ] {
            let text = format!("{signed}.{signature}");
            for keys in [shared(), Keyring::new()] {
                table.row(&text, &judged(&text, &keys), &Err(expected));
            }
        }
    }
    let none: Value = json!({"alg": "none"});
    let inside = format!("{}.", signed(&none.to_string(), CLAIMS));
    table.row(
        "inside another",
        &judged(&token(HEADER, &inside), &shared()),
        &Err(TokenRefusal::Payload),
    );
    table.holds();
}
