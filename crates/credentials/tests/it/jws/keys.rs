//! Selection of the key for a token.

use aws_lc_rs::signature::ECDSA_P384_SHA384_FIXED_SIGNING;
use credentials::BadKey;
use serde_json::{Value, json};

use super::*;

const ES256: &str = r#"{"alg":"ES256"}"#;

fn jwk(pair: &Pair, more: &Value) -> Value {
    let (x, y) = pair.point()[1..].split_at(32);
    let mut key = json!({"kty": "EC", "crv": "P-256", "x": encoded(x), "y": encoded(y)});
    for (name, value) in more.as_object().unwrap() {
        key[name] = value.clone();
    }
    key
}

fn set(keys: &[Value]) -> Result<Keyring, BadKey> {
    Keyring::new().with_jwks(&json!({"keys": keys}).to_string())
}

/// No form of a public key works as an HMAC secret (RFC 8725, 2.1).
#[test]
fn a_public_key_is_not_a_secret() {
    let pair = Pair::p256();
    let keys = Keyring::new().with_pem(&pair.pem).unwrap();
    let der = STANDARD.decode(pair.pem.lines().nth(1).unwrap()).unwrap();
    let jwk = jwk(&pair, &json!({})).to_string();
    let mut table = Table::default();
    for secret in [
        pair.pem.as_bytes(),
        pair.pem.trim_end().as_bytes(),
        pair.pem.lines().nth(1).unwrap().as_bytes(),
        &der,
        pair.point(),
        &pair.point()[1..],
        &pair.point()[1..33],
        jwk.as_bytes(),
        b"",
    ] {
        for alg in ["HS256", "HS384", "HS512", "hs256", "ES256"] {
            let signed = signed(&json!({"alg": alg}).to_string(), CLAIMS);
            let text = format!("{signed}.{}", encoded(mac(secret, &signed)));
            table.row(&text, &judged(&text, &keys), &Err(TokenRefusal::Signature));
        }
    }
    // Next to a secret, each key has its own algorithm.
    let both = keys.with_secret(&Secret::new(SECRET)).unwrap();
    table.row(
        "the key",
        &judged(&pair.token(ES256, CLAIMS), &both),
        &Ok(()),
    );
    table.row(
        "the secret",
        &judged(&token(HEADER, CLAIMS), &both),
        &Ok(()),
    );
    for (case, text) in [
        ("the key as HS256", pair.token(HEADER, CLAIMS)),
        ("the secret as ES256", token(ES256, CLAIMS)),
    ] {
        table.row(case, &judged(&text, &both), &Err(TokenRefusal::Signature));
    }
    table.holds();
}

/// A key inside the token is never used.
#[test]
fn a_key_in_the_token_is_ignored() {
    let (ours, theirs) = (Pair::p256(), Pair::p256());
    let keys = set(&[jwk(&ours, &json!({"kid": "k1"}))]).unwrap();
    let embedded = jwk(&theirs, &json!({}));
    let mut table = Table::default();
    for (name, value) in [
        ("jwk", embedded.clone()),
        ("jku", json!("https://attacker.example/jwks.json")),
        ("x5u", json!("https://attacker.example/chain.pem")),
        ("x5c", json!([STANDARD.encode(theirs.point())])),
        ("x5t", json!(encoded([0; 20]))),
        ("x5t#S256", json!(encoded([0; 32]))),
    ] {
        let header = json!({"alg": "ES256", "kid": "k1", name: value}).to_string();
        for pair in [&ours, &theirs] {
            let was = judged(&pair.token(&header, CLAIMS), &keys);
            table.row(&header, &was, &Err(TokenRefusal::Header(name)));
        }
    }
    table.holds();
}

/// `kid` is compared, and never used for a look-up.
#[test]
fn kid_selects_an_existing_key() {
    let (one, two) = (Pair::p256(), Pair::p256());
    let odd = "a key's \"name\"/../\u{0}\u{e9}";
    let keys = set(&[
        jwk(&one, &json!({"kid": "k1"})),
        jwk(&two, &json!({"kid": odd})),
    ])
    .unwrap();
    let mut table = Table::default();
    let mut row = |pair: &Pair, kid: &str, good: bool| {
        let header = json!({"alg": "ES256", "kid": kid}).to_string();
        let expected = if good {
            Ok(())
        } else {
            Err(TokenRefusal::Signature)
        };
        table.row(kid, &judged(&pair.token(&header, CLAIMS), &keys), &expected);
    };
    row(&one, "k1", true);
    row(&two, odd, true);
    row(&two, "k1", false);
    row(&one, odd, false);
    for kid in [
        "",
        "K1",
        "k1 ",
        " k1",
        "k1\0",
        "k",
        "k11",
        "k2",
        "0",
        "null",
        "*",
        "%6b1",
        "k1/../k1",
        "../k1",
        "../../../../dev/null",
        "/dev/null",
        "file:///dev/null",
        "..\\..\\k1",
        "k1' OR '1'='1",
        "x' UNION SELECT 'key'--",
        "k1; cat /etc/passwd",
        "$(id)",
        "`id`",
        "|id",
        "${jndi:ldap://x}",
        "https://attacker.example/key",
        "\u{212a}1",
    ] {
        row(&one, kid, false);
    }
    row(&one, &"k".repeat(5 * 1024), false);
    let long = json!({"alg": "ES256", "kid": "k".repeat(8 * 1024)}).to_string();
    table.row(
        "long",
        &judged(&one.token(&long, CLAIMS), &keys),
        &Err(TokenRefusal::TooLong),
    );
    // Without `kid`, every key is tried. With two keys of one id, both are tried.
    table.row("no kid", &judged(&two.token(ES256, CLAIMS), &keys), &Ok(()));
    let twins = set(&[
        jwk(&one, &json!({"kid": "k1"})),
        jwk(&two, &json!({"kid": "k1"})),
    ]);
    let header = r#"{"alg":"ES256","kid":"k1"}"#;
    for pair in [&one, &two] {
        let was = judged(&pair.token(header, CLAIMS), twins.as_ref().unwrap());
        table.row("twins", &was, &Ok(()));
    }
    table.holds();
}

/// Key sets: each key is used as declared, refused, or skipped.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn a_key_is_used_as_declared() {
    let pair = Pair::p256();
    let other = Pair::on(&ECDSA_P384_SHA384_FIXED_SIGNING);
    let text = pair.token(ES256, CLAIMS);
    let on_curve = encoded(&pair.point()[1..33]);
    let mut table = Table::default();
    // The result for the document, and then for the token.
    let mut row = |case: &str, key: Value, expected: Result<bool, BadKey>| {
        let was = set(&[key]).map(|keys| judged(&text, &keys).is_ok());
        let was = was.map_err(|error| error.to_string());
        table.row(case, &was, &expected.map_err(|error| error.to_string()));
    };
    for more in [
        json!({}),
        json!({"use": "sig"}),
        json!({"alg": "ES256"}),
        json!({"key_ops": ["verify"]}),
        json!({"key_ops": ["sign", "verify"]}),
        json!({"kid": "any"}),
    ] {
        row(&more.to_string(), jwk(&pair, &more), Ok(true));
    }
    for more in [
        json!({"use": "enc"}),
        json!({"use": ""}),
        json!({"use": "SIG"}),
        json!({"alg": "ES384"}),
        json!({"alg": "HS256"}),
        json!({"alg": "none"}),
        json!({"alg": "ECDH-ES"}),
        json!({"key_ops": []}),
        json!({"key_ops": ["sign"]}),
        json!({"key_ops": ["encrypt", "wrapKey"]}),
        json!({"kty": "oct", "k": encoded(SECRET)}),
        json!({"kty": "OKP"}),
        json!({"kty": "ec"}),
        json!({"kty": 1}),
        json!({"kty": null}),
        json!({"crv": "secp256k1"}),
        json!({"crv": "p-256"}),
        json!({"crv": null}),
    ] {
        row(&more.to_string(), jwk(&pair, &more), Ok(false));
    }
    let is_refused = |key: Value| set(&[key]).is_err();
    for (case, more) in [
        ("a private key", json!({"d": on_curve})),
        ("no x", json!({"x": null})),
        ("an empty x", json!({"x": ""})),
        ("x is a number", json!({"x": 1})),
        ("x with padding", json!({"x": format!("{on_curve}=")})),
        ("x in the other alphabet", json!({"x": "+".repeat(43)})),
        ("a short x", json!({"x": encoded(&pair.point()[1..32])})),
        ("a long x", json!({"x": encoded(&pair.point()[..33])})),
        ("not on the curve", json!({"y": on_curve})),
        (
            "the point at infinity",
            json!({"x": encoded([0; 32]), "y": encoded([0; 32])}),
        ),
        (
            "beyond the field",
            json!({"x": encoded([0xff; 32]), "y": encoded([0xff; 32])}),
        ),
        ("another curve", json!({"crv": "P-384"})),
        ("a curve of its own", json!({"crv": "P-521"})),
        (
            "a point of another curve",
            json!({"x": encoded(&other.point()[1..33]), "y": encoded(&other.point()[33..65])}),
        ),
    ] {
        table.row(case, &is_refused(jwk(&pair, &more)), &true);
    }
    let rsa = |n: Vec<u8>, e: &[u8]| json!({"kty": "RSA", "n": encoded(n), "e": encoded(e)});
    let odd = |bytes: usize| [vec![0xc1; bytes - 1], vec![1]].concat();
    for (case, key) in [
        ("512 bits", rsa(odd(64), &[1, 0, 1])),
        ("1024 bits", rsa(odd(128), &[1, 0, 1])),
        (
            "2047 bits",
            rsa([vec![0x41; 255], vec![1]].concat(), &[1, 0, 1]),
        ),
        ("16384 bits", rsa(odd(2048), &[1, 0, 1])),
        ("an exponent of one", rsa(odd(256), &[1])),
        ("an exponent of zero", rsa(odd(256), &[0])),
        ("an even exponent", rsa(odd(256), &[4])),
        ("no exponent", rsa(odd(256), &[])),
        ("no modulus", rsa(Vec::new(), &[1, 0, 1])),
        ("an even modulus", rsa(vec![0xc2; 256], &[1, 0, 1])),
        (
            "an exponent as long as the modulus",
            rsa(odd(256), &odd(256)),
        ),
    ] {
        table.row(case, &is_refused(key), &true);
    }
    for document in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"keys":null}"#,
        r#"{"keys":{}}"#,
        r#"{"keys":[1]}"#,
        r#"{"keys":[null]}"#,
        r#"{"keys":[[]]}"#,
        r#"{"keys":[],"keys":[]}"#,
        r#"{"keys":[]}x"#,
    ] {
        table.row(
            document,
            &Keyring::new().with_jwks(document).is_err(),
            &true,
        );
    }
    let many = vec![jwk(&pair, &json!({})); 65];
    table.row("65 keys", &set(&many).is_err(), &true);
    table.row("64 keys", &set(&many[1..]).is_ok(), &true);
    table.holds();
}

#[test]
fn a_pem_text_contains_public_keys_only() {
    let pair = Pair::p256();
    let body = pair.pem.lines().nth(1).unwrap();
    let labelled =
        |label: &str| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
    let mut table = Table::default();
    for label in [
        "PRIVATE KEY",
        "EC PRIVATE KEY",
        "RSA PUBLIC KEY",
        "CERTIFICATE",
        "public key",
        "",
    ] {
        table.row(
            label,
            &Keyring::new().with_pem(&labelled(label)).is_err(),
            &true,
        );
    }
    for text in [
        "",
        "-----BEGIN PUBLIC KEY-----",
        "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        "-----BEGIN PUBLIC KEY-----\n****\n-----END PUBLIC KEY-----\n",
        body,
    ] {
        table.row(text, &Keyring::new().with_pem(text).is_err(), &true);
    }
    table.row(
        "1024 bits",
        &Keyring::new().with_pem(RSA_1024).is_err(),
        &true,
    );
    let twice = Keyring::new().with_pem(&pair.pem.repeat(2)).unwrap();
    table.row("two sections", &twice.len(), &2);
    table.holds();
}

/// A public key whose private key was deleted.
const RSA_1024: &str = "\
-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDASDvPzsB3beDv5Pjrc/W5ARQK
eSSjd2XBAk+DXE5R1pzfDvhuYvYzuhKyC5dp177RdvT502UDmPS0ZYPYyXrn3GrI
4dsLtiZVkhS9iJV/ikWhSmVQDoW0Eodvy8XiizGMahqnDqbDdJwTqvQgTbfa0AU1
Yb92i50jdk0sarUTKQIDAQAB
-----END PUBLIC KEY-----
";
