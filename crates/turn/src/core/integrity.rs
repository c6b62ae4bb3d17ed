//! Keys of long-term credentials, and the integrity of messages (RFC 8489 sections 9.2 and 14.5).
//!
//! The standard treats the algorithms of the key and of the integrity as two choices, but the
//! message library as one. Both are therefore implemented here, with the project's only
//! cryptographic provider.

use aws_lc_rs::{constant_time, digest, hmac};
use credentials::Secret;
use md5::{Digest as _, Md5};
use stun_types::attribute::{
    Attribute as _, AttributeStaticType as _, Fingerprint, MessageIntegrity, MessageIntegritySha256,
};
use stun_types::message::{Message, MessageWrite as _, MessageWriteExt as _, MessageWriteVec};

use super::frame::HEADER_BYTES;

/// Derivation of a key from user, realm and password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// The algorithm of RFC 5389.
    Md5,
    /// The algorithm that RFC 8489 added.
    Sha256,
}

/// Authentication of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// MESSAGE-INTEGRITY.
    Sha1,
    /// MESSAGE-INTEGRITY-SHA256.
    Sha256,
}

/// The key of one long-term credential.
#[derive(Clone, Debug)]
pub struct Key {
    algorithm: KeyAlgorithm,
    bytes: Secret,
}

impl Key {
    /// Derives the key.
    pub fn new(algorithm: KeyAlgorithm, username: &str, realm: &str, password: &str) -> Self {
        let parts = [username, ":", realm, ":", password];
        let bytes = match algorithm {
            KeyAlgorithm::Md5 => {
                let mut hash = Md5::new();
                for part in parts {
                    hash.update(part);
                }
                Secret::new(hash.finalize().as_slice())
            }
            KeyAlgorithm::Sha256 => {
                let mut hash = digest::Context::new(&digest::SHA256);
                for part in parts {
                    hash.update(part.as_bytes());
                }
                Secret::new(hash.finish().as_ref())
            }
        };
        Self { algorithm, bytes }
    }

    /// Algorithm of the derivation.
    pub fn algorithm(&self) -> KeyAlgorithm {
        self.algorithm
    }

    /// Verifies that the author of the message has this key, and returns the method of
    /// authentication. If both are present, the stronger one is used.
    pub fn verify(&self, message: &Message<'_>) -> Option<Integrity> {
        let mut found = None;
        for (offset, attribute) in message.iter_attributes() {
            let kind = match attribute.get_type() {
                MessageIntegrity::TYPE => Integrity::Sha1,
                MessageIntegritySha256::TYPE => Integrity::Sha256,
                _ => continue,
            };
            if kind == Integrity::Sha256 || found.is_none() {
                found = Some((kind, offset, attribute));
            }
        }
        let (kind, offset, attribute) = found?;
        if attribute.value.len() != kind.tag_bytes() {
            return None;
        }
        let tag = self.tag(kind, message.as_bytes().get(..offset)?)?;
        constant_time::verify_slices_are_equal(tag.as_ref(), &attribute.value).ok()?;
        Some(kind)
    }

    /// Appends the integrity of all previous attributes.
    pub fn sign(&self, kind: Integrity, out: &mut MessageWriteVec) {
        let before = out.len();
        match kind {
            Integrity::Sha1 => out.push_attribute_unchecked(&MessageIntegrity::new([0; 20])),
            Integrity::Sha256 => {
                if let Ok(empty) = MessageIntegritySha256::new(&[0; 32]) {
                    out.push_attribute_unchecked(&empty);
                }
            }
        }
        let Some(tag) = out
            .data()
            .get(..before)
            .and_then(|head| self.tag(kind, head))
        else {
            return;
        };
        if let Some(place) = out.mut_data().get_mut(before + 4..) {
            place.copy_from_slice(tag.as_ref());
        }
    }

    /// The tag over the message before the attribute; the length field includes the attribute.
    fn tag(&self, kind: Integrity, head: &[u8]) -> Option<hmac::Tag> {
        let ([a, b, _, _], rest) = head.split_first_chunk()?;
        let length = head.len() - HEADER_BYTES + 4 + kind.tag_bytes();
        let [high, low] = u16::try_from(length).ok()?.to_be_bytes();
        let algorithm = match kind {
            Integrity::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Integrity::Sha256 => hmac::HMAC_SHA256,
        };
        let key = hmac::Key::new(algorithm, self.bytes.expose());
        let mut context = hmac::Context::with_key(&key);
        context.update(&[*a, *b, high, low]);
        context.update(rest);
        Some(context.sign())
    }
}

impl Integrity {
    fn tag_bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
}

/// True if the message has an integrity attribute.
pub(super) fn is_signed(message: &Message<'_>) -> bool {
    message.has_attribute(MessageIntegrity::TYPE)
        || message.has_attribute(MessageIntegritySha256::TYPE)
}

/// Finishes a message; it gets a fingerprint if the peer's message has one.
pub(super) fn finish(mut out: MessageWriteVec, peer_message: &Message<'_>) -> Vec<u8> {
    if peer_message.has_attribute(Fingerprint::TYPE) {
        // The message has no fingerprint yet, and has room for it.
        out.add_fingerprint().ok();
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use stun_types::attribute::{Software, Username, XorMappedAddress};

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pairs = digits.chunks(2);
        pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn short_term(password: &str) -> Key {
        Key {
            algorithm: KeyAlgorithm::Md5,
            bytes: Secret::new(password),
        }
    }

    const SAMPLE_PASSWORD: &str = "VOkJxbRl1RmTxUk/WvJxBt";

    /// RFC 5769 section 2.1.
    const REQUEST: &str = "
        00 01 00 58 21 12 a4 42 b7 e7 a7 01 bc 34 d6 86 fa 87 df ae
        80 22 00 10 53 54 55 4e 20 74 65 73 74 20 63 6c 69 65 6e 74
        00 24 00 04 6e 00 01 ff 80 29 00 08 93 2f f9 b1 51 26 3b 36
        00 06 00 09 65 76 74 6a 3a 68 36 76 59 20 20 20
        00 08 00 14 9a ea a7 0c bf d8 cb 56 78 1e f2 b5 b2 d3 f2 49 c1 b5 71 a2
        80 28 00 04 e5 7a 3b cf";

    /// RFC 5769 section 2.2.
    const RESPONSE_V4: &str = "
        01 01 00 3c 21 12 a4 42 b7 e7 a7 01 bc 34 d6 86 fa 87 df ae
        80 22 00 0b 74 65 73 74 20 76 65 63 74 6f 72 20
        00 20 00 08 00 01 a1 47 e1 12 a6 43
        00 08 00 14 2b 91 f5 99 fd 9e 90 c3 8c 74 89 f9 2a f9 ba 53 f0 6b e7 d7
        80 28 00 04 c0 7d 4c 96";

    /// RFC 5769 section 2.3.
    const RESPONSE_V6: &str = "
        01 01 00 48 21 12 a4 42 b7 e7 a7 01 bc 34 d6 86 fa 87 df ae
        80 22 00 0b 74 65 73 74 20 76 65 63 74 6f 72 20
        00 20 00 14 00 02 a1 47 01 13 a9 fa a5 d3 f1 79 bc 25 f4 b5 be d2 b9 d9
        00 08 00 14 a3 82 95 4e 4b e6 7b f1 17 84 c9 7c 82 92 c2 75 bf e3 ed 41
        80 28 00 04 c8 fb 0b 4c";

    /// RFC 5769 section 2.4.
    const LONG_TERM: &str = "
        00 01 00 60 21 12 a4 42 78 ad 34 33 c6 ad 72 c0 29 da 41 2e
        00 06 00 12 e3 83 9e e3 83 88 e3 83 aa e3 83 83 e3 82 af e3 82 b9 00 00
        00 15 00 1c 66 2f 2f 34 39 39 6b 39 35 34 64 36 4f 4c 33 34
        6f 4c 39 46 53 54 76 79 36 34 73 41
        00 14 00 0b 65 78 61 6d 70 6c 65 2e 6f 72 67 00
        00 08 00 14 f6 70 24 65 6d d6 4a 3e 02 b8 e0 71 2e 85 c9 a2 8c a8 96 66";

    #[test]
    fn the_vectors_of_rfc_5769_verify() {
        let key = short_term(SAMPLE_PASSWORD);
        for vector in [REQUEST, RESPONSE_V4, RESPONSE_V6] {
            let bytes = bytes(vector);
            let message = Message::from_bytes(&bytes).unwrap();
            assert_eq!(key.verify(&message), Some(Integrity::Sha1));
            assert_eq!(short_term("other").verify(&message), None);
        }
        let request = bytes(REQUEST);
        let request = Message::from_bytes(&request).unwrap();
        let username: Username = request.attribute().unwrap();
        assert_eq!(username.username(), "evtj:h6vY");
        let software: Software = request.attribute().unwrap();
        assert_eq!(software.software(), "STUN test client");
        for (vector, address) in [
            (RESPONSE_V4, "192.0.2.1:32853"),
            (RESPONSE_V6, "[2001:db8:1234:5678:11:2233:4455:6677]:32853"),
        ] {
            let bytes = bytes(vector);
            let message = Message::from_bytes(&bytes).unwrap();
            let mapped: XorMappedAddress = message.attribute().unwrap();
            assert_eq!(
                mapped.addr(message.transaction_id()),
                address.parse().unwrap()
            );
        }
        let bytes = bytes(LONG_TERM);
        let message = Message::from_bytes(&bytes).unwrap();
        let username = "\u{30de}\u{30c8}\u{30ea}\u{30c3}\u{30af}\u{30b9}";
        let key = |password| Key::new(KeyAlgorithm::Md5, username, "example.org", password);
        // The password after SASLprep, as in the RFC.
        assert_eq!(key("TheMatrIX").verify(&message), Some(Integrity::Sha1));
        assert_eq!(key("TheMatrix").verify(&message), None);
    }

    #[test]
    fn any_changed_bit_is_detected() {
        let key = short_term(SAMPLE_PASSWORD);
        let whole = bytes(REQUEST);
        // All bytes in front of the integrity, and the integrity.
        for index in 0..whole.len() - 8 {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[index] ^= 1 << bit;
                // The fingerprint is removed, because it would also detect the change.
                changed.truncate(whole.len() - 8);
                changed[2..4]
                    .copy_from_slice(&u16::try_from(whole.len() - 28).unwrap().to_be_bytes());
                if (2..4).contains(&index) {
                    continue;
                }
                let verified = Message::from_bytes(&changed)
                    .ok()
                    .and_then(|message| key.verify(&message));
                assert_eq!(verified, None, "bit {bit} of byte {index}");
            }
        }
    }

    #[test]
    fn signatures_verify_with_every_pair_of_algorithms() {
        let request = bytes(REQUEST);
        let request = Message::from_bytes(&request).unwrap();
        for algorithm in [KeyAlgorithm::Md5, KeyAlgorithm::Sha256] {
            let key = Key::new(algorithm, "user", "realm", "password");
            for kind in [Integrity::Sha1, Integrity::Sha256] {
                let mut out = Message::builder_success(&request, MessageWriteVec::new());
                out.add_attribute(&Software::new("x").unwrap()).unwrap();
                key.sign(kind, &mut out);
                let bytes = finish(out, &request);
                let message = Message::from_bytes(&bytes).unwrap();
                assert!(is_signed(&message) && message.has_attribute(Fingerprint::TYPE));
                assert_eq!(key.verify(&message), Some(kind));
                let other = Key::new(algorithm, "user", "realm", "other");
                assert_eq!(other.verify(&message), None);
            }
        }
    }
}
