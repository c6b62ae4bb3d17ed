//! Temporary secrets that identify a user: for sessions, reset links and invitations.
//!
//! A secret is 32 random bytes, shown once in base64url. Only its SHA-256 is stored. All of it is
//! random, so a plain hash is enough: the secret cannot be guessed from it, and a copy of the
//! database opens no session.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use credentials::Secret;

use crate::http_api::problem::HandlerResult;
use crate::runtime::random;

/// The secret in plain text, as its owner has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSecret(Secret);

impl LinkSecret {
    /// Draws a new secret.
    pub fn draw() -> HandlerResult<Self> {
        Ok(Self(Secret::new(random::bytes::<32>()?)))
    }

    /// Parses a secret from a request. Only 43 characters of canonical base64url are accepted.
    pub fn parse(text: &str) -> Option<Self> {
        // The length is checked first, so that a long text costs nothing.
        let bytes =
            (text.len() == TEXT_LENGTH).then(|| BASE64_URL_SAFE_NO_PAD.decode(text).ok())??;
        Some(Self(Secret::new(bytes)))
    }

    /// The text for the cookie or the link. The secret must not be written out elsewhere.
    pub fn reveal(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.0.expose())
    }

    /// The hash to store and to search for. The lookup in an index needs no constant time: a client
    /// could choose the hash only if it had the secret.
    pub fn hash(&self) -> [u8; 32] {
        let mut hash = [0; 32];
        let digest = digest::digest(&digest::SHA256, self.0.expose());
        for (byte, given) in hash.iter_mut().zip(digest.as_ref()) {
            *byte = *given;
        }
        hash
    }
}

/// 32 bytes in base64 without padding.
const TEXT_LENGTH: usize = 43;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_survives_a_round_trip() {
        let secret = LinkSecret::draw().unwrap();
        let back = LinkSecret::parse(&secret.reveal()).unwrap();
        assert_eq!(back, secret);
        assert_eq!(back.hash(), secret.hash());
        assert_ne!(LinkSecret::draw().unwrap().hash(), secret.hash());
        assert!(!format!("{secret:?}").contains(&secret.reveal()));
    }

    #[test]
    fn only_the_canonical_form_is_read() {
        let text = LinkSecret::draw().unwrap().reveal();
        let padded = format!("{text}=");
        // The last of 43 characters has two unused bits, which must be zero.
        let loose = format!("{}B", "A".repeat(42));
        for bad in [
            "",
            &text[..42],
            &padded,
            &text.replace(&text[..1], "+"),
            &loose,
        ] {
            assert_eq!(LinkSecret::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_stored_hash_is_sha_256() {
        let secret = LinkSecret::parse(&"A".repeat(43)).unwrap();
        // Of 32 zero bytes, computed with another implementation.
        let expected = [
            0x66, 0x68, 0x7a, 0xad, 0xf8, 0x62, 0xbd, 0x77, 0x6c, 0x8f, 0xc1, 0x8b, 0x8e, 0x9f,
            0x8e, 0x20, 0x08, 0x97, 0x14, 0x85, 0x6e, 0xe2, 0x33, 0xb3, 0x90, 0x2a, 0x59, 0x1d,
            0x0d, 0x5f, 0x29, 0x25,
        ];
        assert_eq!(secret.hash(), expected);
    }
}
