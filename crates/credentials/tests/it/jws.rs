//! The table of manipulated tokens. Each row has a token and the expected result.
//!
//! The kinds of rows are those of Wycheproof's JSON Web Signature and JSON Web Key tests and of RFC
//! 8725. The keys and the signatures are created here, except for those of RS256, which no library
//! creates (`tests/vectors/rs256.json`).

mod claims;
mod form;
mod keys;
mod signatures;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use credentials::{Keyring, Secret, TokenRefusal, verify};

const NOW: i64 = 1_800_000_000;
const SECRET: &str = "a secret of thirty-two bytes, or more";
const HEADER: &str = r#"{"alg":"HS256"}"#;
const CLAIMS: &str = r#"{"type":"pat","userId":"ann"}"#;

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn mac(secret: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

/// The signing input.
fn signed(header: &str, claims: &str) -> String {
    format!("{}.{}", encoded(header), encoded(claims))
}

/// A token of these texts, signed with [`SECRET`] whatever its header states.
fn token(header: &str, claims: &str) -> String {
    let signed = signed(header, claims);
    let signature = encoded(mac(SECRET.as_bytes(), &signed));
    format!("{signed}.{signature}")
}

fn shared() -> Keyring {
    Keyring::new().with_secret(&Secret::new(SECRET)).unwrap()
}

fn judged(token: &str, keys: &Keyring) -> Result<(), TokenRefusal> {
    verify(token, keys, NOW).map(drop)
}

/// A key pair on a curve, and its public key as PEM.
struct Pair {
    key: EcdsaKeyPair,
    pem: String,
}

impl Pair {
    fn p256() -> Self {
        Self::on(&ECDSA_P256_SHA256_FIXED_SIGNING)
    }

    fn on(curve: &'static EcdsaSigningAlgorithm) -> Self {
        let key = EcdsaKeyPair::generate(curve).unwrap();
        let der = key.public_key().as_der().unwrap();
        let pem = format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            STANDARD.encode(der.as_ref())
        );
        Self { key, pem }
    }

    /// An uncompressed point.
    fn point(&self) -> &[u8] {
        self.key.public_key().as_ref()
    }

    fn sign(&self, text: &str) -> Vec<u8> {
        let random = SystemRandom::new();
        let signature = self.key.sign(&random, text.as_bytes()).unwrap();
        signature.as_ref().to_vec()
    }

    fn token(&self, header: &str, claims: &str) -> String {
        let signed = signed(header, claims);
        let signature = encoded(self.sign(&signed));
        format!("{signed}.{signature}")
    }
}

/// The failed rows of a table. A run reports all of them together.
#[derive(Default)]
struct Table {
    rows: usize,
    wrong: Vec<String>,
}

impl Table {
    fn row<T: std::fmt::Debug + PartialEq>(&mut self, case: &str, was: &T, expected: &T) {
        self.rows += 1;
        if was != expected {
            let case: String = case.chars().take(120).collect();
            self.wrong
                .push(format!("{case}: {was:?}, not {expected:?}"));
        }
    }

    #[track_caller]
    fn holds(self) {
        assert!(self.rows > 0 && self.wrong.is_empty(), "{:#?}", self.wrong);
    }
}
