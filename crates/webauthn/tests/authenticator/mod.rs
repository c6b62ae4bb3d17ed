//! A software authenticator, with the browser in front of it. Tests can change every part of its
//! output before it is signed.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

pub(crate) const UP: u8 = 1;
pub(crate) const UV: u8 = 4;

/// A key pair of each supported kind.
pub(crate) enum Key {
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
    Rs256(Box<RsaKeyPair>),
}

/// One passkey.
pub(crate) struct Authenticator {
    pub(crate) key: Key,
    pub(crate) credential_id: Vec<u8>,
    pub(crate) rp_id: String,
    pub(crate) origin: String,
    pub(crate) flags: u8,
    pub(crate) sign_count: u32,
}

/// The browser's response when a passkey is used.
#[derive(Clone)]
pub(crate) struct AssertionResponse {
    pub(crate) client_data: Vec<u8>,
    pub(crate) authenticator_data: Vec<u8>,
    pub(crate) signature: Vec<u8>,
}

impl Key {
    pub(crate) fn es256() -> Self {
        Self::Es256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap())
    }

    pub(crate) fn all() -> [Self; 3] {
        [
            Self::es256(),
            Self::EdDsa(Ed25519KeyPair::generate().unwrap()),
            Self::Rs256(Box::new(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())),
        ]
    }

    /// The public key in COSE form.
    pub(crate) fn cose(&self) -> Vec<u8> {
        match self {
            Self::Es256(pair) => {
                let point = pair.public_key().as_ref();
                let head = [0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20];
                [&head, &point[1..33], &[0x22, 0x58, 0x20], &point[33..]].concat()
            }
            Self::EdDsa(pair) => {
                let head = [0xa4, 0x01, 0x01, 0x03, 0x27, 0x20, 0x06, 0x21, 0x58, 0x20];
                [&head, pair.public_key().as_ref()].concat()
            }
            Self::Rs256(pair) => {
                // RFC 8017 appendix A.1.1 in DER: for 2048 bits, the modulus starts at byte 9 and
                // the exponent is the last three bytes.
                let der = pair.public_key().as_ref();
                let (modulus, exponent) = (&der[9..265], &der[der.len() - 3..]);
                let head = [0xa4, 0x01, 0x03, 0x03, 0x39, 0x01, 0x00, 0x20];
                [&head[..], &bytes(modulus), &[0x21], &bytes(exponent)].concat()
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Es256(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::EdDsa(pair) => pair.sign(message).as_ref().to_vec(),
            Self::Rs256(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .unwrap();
                signature
            }
        }
    }
}

impl Authenticator {
    /// An authenticator for a page of `origin`, and its host.
    pub(crate) fn at(origin: &str, key: Key) -> Self {
        let host = origin.split("://").nth(1).unwrap();
        Self {
            key,
            credential_id: vec![7; 16],
            rp_id: host.split(':').next().unwrap().to_owned(),
            origin: origin.to_owned(),
            flags: UP | UV,
            sign_count: 1,
        }
    }

    pub(crate) fn client_data(&self, purpose: &str, challenge: &[u8]) -> Vec<u8> {
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(challenge);
        let origin = &self.origin;
        format!(
            r#"{{"type":"{purpose}","challenge":"{challenge}","origin":"{origin}","crossOrigin":false,"another":1}}"#
        )
        .into_bytes()
    }

    pub(crate) fn authenticator_data(&self, flags: u8) -> Vec<u8> {
        let hash = digest(&SHA256, self.rp_id.as_bytes());
        [hash.as_ref(), &[flags], &self.sign_count.to_be_bytes()].concat()
    }

    /// The attestation object of a new passkey.
    pub(crate) fn attestation(&self) -> Vec<u8> {
        let length = u16::try_from(self.credential_id.len()).unwrap();
        let data = [
            &self.authenticator_data(self.flags | 0x40),
            &[0; 16][..],
            &length.to_be_bytes(),
            &self.credential_id,
            &self.key.cose(),
        ]
        .concat();
        let head = b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData";
        [&head[..], &bytes(&data)].concat()
    }

    pub(crate) fn show(&self, challenge: &[u8]) -> AssertionResponse {
        let client_data = self.client_data("webauthn.get", challenge);
        self.sign(client_data, self.authenticator_data(self.flags))
    }

    pub(crate) fn sign(
        &self,
        client_data: Vec<u8>,
        authenticator_data: Vec<u8>,
    ) -> AssertionResponse {
        let hash = digest(&SHA256, &client_data);
        let signature = self
            .key
            .sign(&[&authenticator_data, hash.as_ref()].concat());
        AssertionResponse {
            client_data,
            authenticator_data,
            signature,
        }
    }
}

/// A byte string in CBOR.
fn bytes(content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let head = match u8::try_from(length) {
        Ok(short @ 0..=23) => vec![0x40 | short],
        Ok(byte) => vec![0x58, byte],
        Err(_) => [&[0x59][..], &u16::try_from(length).unwrap().to_be_bytes()].concat(),
    };
    [&head, content].concat()
}
