//! Nearly valid signatures.

use aws_lc_rs::signature::Ed25519KeyPair;
use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING};
use serde::Deserialize;
use serde_json::json;

use super::*;

#[test]
fn a_mac_is_complete_and_made_with_the_secret() {
    let signed = signed(HEADER, CLAIMS);
    let mac = mac(SECRET.as_bytes(), &signed);
    let mut table = Table::default();
    let mut row = |case: &str, signature: &[u8], expected: Result<(), TokenRefusal>| {
        let text = format!("{signed}.{}", encoded(signature));
        table.row(case, &judged(&text, &shared()), &expected);
    };
    row("as it should be", &mac, Ok(()));
    for cut in [1, 8, 16, 31] {
        row("truncated", &mac[..cut], Err(TokenRefusal::Signature));
        row(
            "without its beginning",
            &mac[cut..],
            Err(TokenRefusal::Signature),
        );
    }
    for place in 0..mac.len() * 8 {
        let mut bent = mac.clone();
        bent[place / 8] ^= 1 << (place % 8);
        row("a bit", &bent, Err(TokenRefusal::Signature));
    }
    row("empty", &[], Err(TokenRefusal::Form));
    row(
        "longer",
        &[&*mac, &[0]].concat(),
        Err(TokenRefusal::Signature),
    );
    row(
        "twice",
        &[&*mac, &mac].concat(),
        Err(TokenRefusal::Signature),
    );
    row("zeros", &[0; 32], Err(TokenRefusal::Signature));
    for secret in [
        "",
        "a secret of thirty-two bytes, or mor",
        "A secret of thirty-two bytes, or more",
    ] {
        row(
            secret,
            &super::mac(secret.as_bytes(), &signed),
            Err(TokenRefusal::Signature),
        );
    }
    // HMAC fills a block with zeros (RFC 2104), so these are the same secret. A visitor cannot
    // exploit that.
    row(
        "a zero more",
        &super::mac(&[SECRET.as_bytes(), b"\0"].concat(), &signed),
        Ok(()),
    );
    row(
        "of another text",
        &super::mac(SECRET.as_bytes(), &format!("{signed}.")),
        Err(TokenRefusal::Signature),
    );
    table.holds();
    assert!(Keyring::new().with_secret(&Secret::new("")).is_err());
}

/// r and s at their limits, and in encodings that other libraries accept. `n` is the order of the
/// group (SEC 2).
#[test]
fn an_ecdsa_signature_is_two_numbers_of_the_group() {
    for (alg, curve, order) in [
        (
            "ES256",
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
        ),
        (
            "ES384",
            &ECDSA_P384_SHA384_FIXED_SIGNING,
            "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
        ),
        (
            "ES512",
            &ECDSA_P521_SHA512_FIXED_SIGNING,
            "01fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409",
        ),
    ] {
        ecdsa(alg, curve, &hex(order));
    }
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn ecdsa(alg: &str, curve: &'static EcdsaSigningAlgorithm, order: &[u8]) {
    let pair = Pair::on(curve);
    let keys = Keyring::new().with_pem(&pair.pem).unwrap();
    let signed = signed(&json!({ "alg": alg }).to_string(), CLAIMS);
    let good = pair.sign(&signed);
    let size = order.len();
    assert_eq!(good.len(), 2 * size);
    let (r, s) = good.split_at(size);
    let mut table = Table::default();
    let mut row = |case: &str, signature: &[u8], expected: Result<(), TokenRefusal>| {
        let text = format!("{signed}.{}", encoded(signature));
        table.row(&format!("{alg}: {case}"), &judged(&text, &keys), &expected);
    };
    row("as it should be", &good, Ok(()));
    let small = |last: u8| [vec![0; size - 1], vec![last]].concat();
    let near = |less: u8| {
        let mut near = order.to_vec();
        near[size - 1] = near[size - 1].wrapping_sub(less);
        near
    };
    let edges = [
        ("0", small(0)),
        ("1", small(1)),
        ("n-1", near(1)),
        ("n", near(0)),
        ("n+1", near(0xff)),
        ("all ones", vec![0xff; size]),
    ];
    for (first, r) in &edges {
        for (second, s) in &edges {
            let case = format!("r={first} s={second}");
            row(&case, &[&**r, s].concat(), Err(TokenRefusal::Signature));
        }
    }
    for (name, edge) in &edges {
        row(
            &format!("r, s={name}"),
            &[r, edge].concat(),
            Err(TokenRefusal::Signature),
        );
        row(
            &format!("r={name}, s"),
            &[edge, s].concat(),
            Err(TokenRefusal::Signature),
        );
    }
    let der = |r: &[u8], s: &[u8]| {
        let integer =
            |value: &[u8]| [&[2, u8::try_from(value.len() + 1).unwrap(), 0], value].concat();
        let body = [integer(r), integer(s)].concat();
        [&[0x30, u8::try_from(body.len() % 256).unwrap()], &*body].concat()
    };
    for (case, signature) in [
        ("in DER", der(r, s)),
        ("r and s exchanged", [s, r].concat()),
        ("r twice", [r, r].concat()),
        ("r alone", r.to_vec()),
        ("a zero before", [&[0], &*good].concat()),
        ("a zero behind", [&*good, &[0]].concat()),
        ("zeros in both", [&[0], r, &[0], s].concat()),
        ("a byte short", good[..2 * size - 1].to_vec()),
        ("twice", [&*good, &good].concat()),
        ("one byte", vec![0]),
        ("of another text", pair.sign(&format!("{signed}."))),
        ("of another key", Pair::on(curve).sign(&signed)),
    ] {
        row(case, &signature, Err(TokenRefusal::Signature));
    }
    for place in 0..good.len() {
        let mut bent = good.clone();
        bent[place] ^= 0x80;
        row("a bit", &bent, Err(TokenRefusal::Signature));
    }
    // Each ECDSA signature has a second form, which only its signer or a holder of the first can
    // compute.
    row("the other s", &[r, &*minus(order, s)].concat(), Ok(()));
    for (case, header) in [
        ("another algorithm of the kind", "ES256K"),
        ("in lower case", &*alg.to_lowercase()),
        ("a secret's", "HS256"),
    ] {
        let text = pair.token(&json!({"alg": header}).to_string(), CLAIMS);
        table.row(case, &judged(&text, &keys), &Err(TokenRefusal::Signature));
    }
    table.holds();
}

/// RFC 8032, 5.1.7: the second half is below the order, and the whole is 64 bytes.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn an_ed25519_signature_is_canonical() {
    let pair = Ed25519KeyPair::generate().unwrap();
    let x = encoded(aws_lc_rs::signature::KeyPair::public_key(&pair));
    let document = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x}]}).to_string();
    let keys = Keyring::new().with_jwks(&document).unwrap();
    let signed = signed(r#"{"alg":"EdDSA"}"#, CLAIMS);
    let good = pair.sign(signed.as_bytes()).as_ref().to_vec();
    let (r, s) = good.split_at(32);
    // Little-endian.
    let order = hex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
    let mut carry = 0_u16;
    let above: Vec<u8> = s
        .iter()
        .zip(&order)
        .map(|(a, b)| {
            carry += u16::from(*a) + u16::from(*b);
            let [low, high] = carry.to_le_bytes();
            carry = u16::from(high);
            low
        })
        .collect();
    let identity = [vec![1], vec![0; 31]].concat();
    let mut table = Table::default();
    for (case, signature, expected) in [
        ("as it should be", good.clone(), Ok(())),
        (
            "s and the order",
            [r, &*above].concat(),
            Err(TokenRefusal::Signature),
        ),
        (
            "s is the order",
            [r, &*order].concat(),
            Err(TokenRefusal::Signature),
        ),
        (
            "s is zero",
            [r, &[0; 32]].concat(),
            Err(TokenRefusal::Signature),
        ),
        ("all zero", vec![0; 64], Err(TokenRefusal::Signature)),
        ("all ones", vec![0xff; 64], Err(TokenRefusal::Signature)),
        (
            "r is the identity",
            [&*identity, s].concat(),
            Err(TokenRefusal::Signature),
        ),
        (
            "the identity and zero",
            [&*identity, &[0; 32]].concat(),
            Err(TokenRefusal::Signature),
        ),
        ("half", r.to_vec(), Err(TokenRefusal::Signature)),
        (
            "a byte short",
            good[..63].to_vec(),
            Err(TokenRefusal::Signature),
        ),
        (
            "a byte more",
            [&*good, &[0]].concat(),
            Err(TokenRefusal::Signature),
        ),
        (
            "halves exchanged",
            [s, r].concat(),
            Err(TokenRefusal::Signature),
        ),
        (
            "of another text",
            pair.sign(b"x").as_ref().to_vec(),
            Err(TokenRefusal::Signature),
        ),
    ] {
        let text = format!("{signed}.{}", encoded(signature));
        table.row(case, &judged(&text, &keys), &expected);
    }
    for place in 0..512 {
        let mut bent = good.clone();
        bent[place / 8] ^= 1 << (place % 8);
        let text = format!("{signed}.{}", encoded(bent));
        table.row(
            "a bit",
            &judged(&text, &keys),
            &Err(TokenRefusal::Signature),
        );
    }
    table.holds();
}

#[derive(Deserialize)]
struct Vectors {
    header: String,
    payload: String,
    n: String,
    e: String,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    header: Option<String>,
    payload: Option<String>,
    signature: String,
    #[serde(default)]
    good: bool,
}

/// RFC 8017, 8.2.2: the encoded message is computed again and compared as a whole.
#[test]
fn an_rs256_signature_has_exactly_one_padding() {
    let vectors: Vectors = serde_json::from_str(include_str!("../../vectors/rs256.json")).unwrap();
    let document = json!({"keys": [{"kty": "RSA", "n": vectors.n, "e": vectors.e}]});
    let keys = Keyring::new().with_jwks(&document.to_string()).unwrap();
    let mut table = Table::default();
    for row in &vectors.rows {
        let header = row.header.as_ref().unwrap_or(&vectors.header);
        let payload = row.payload.as_ref().unwrap_or(&vectors.payload);
        let text = format!("{}.{}", signed(header, payload), row.signature);
        let expected = if row.good {
            Ok(())
        } else {
            Err(TokenRefusal::Signature)
        };
        table.row(&row.name, &judged(&text, &keys), &expected);
    }
    assert_eq!(vectors.rows.iter().filter(|row| row.good).count(), 3);
    table.holds();
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// `a - b`, big-endian.
fn minus(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut borrow = 0_i16;
    let mut digits: Vec<u8> = a
        .iter()
        .zip(b)
        .rev()
        .map(|(a, b)| {
            let difference = i16::from(*a) - i16::from(*b) - borrow;
            borrow = i16::from(difference < 0);
            u8::try_from(difference.rem_euclid(256)).unwrap()
        })
        .collect();
    digits.reverse();
    digits
}
