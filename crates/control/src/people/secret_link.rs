//! Secrets that stand for somebody for a while: sessions, reset links, invitations.
//!
//! 32 random bytes, shown once in base64url; what is kept is their SHA-256. The secret is random in
//! full, so a plain hash is enough: there is nothing to guess from it, and a copy of the database
//! opens no session.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use credentials::Secret;

use crate::problem::Answer;
use crate::random;

/// A secret as its holder has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSecret(Secret);

/// What is kept of a [`LinkSecret`].
pub type LinkHash = [u8; 32];

impl LinkSecret {
    /// Draws a new one.
    pub fn draw() -> Answer<Self> {
        Ok(Self(Secret::new(random::bytes::<32>()?)))
    }

    /// Reads one that came back; anything but 43 characters of canonical base64url is none.
    pub fn parse(text: &str) -> Option<Self> {
        // The length is checked first, so that a long text costs nothing.
        let bytes =
            (text.len() == TEXT_LENGTH).then(|| BASE64_URL_SAFE_NO_PAD.decode(text).ok())??;
        Some(Self(Secret::new(bytes)))
    }

    /// The text for the cookie or the link: the only place where it is written out.
    pub fn reveal(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.0.expose())
    }

    /// What to keep, and to look up by. A look-up in an index by hash needs no constant time:
    /// whoever could steer the hash already has the secret.
    pub fn hash(&self) -> LinkHash {
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
    fn a_secret_comes_back_as_it_was() {
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
        // The last of 43 characters carries two bits that stand for nothing and must be zero.
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
    fn what_is_kept_is_sha_256() {
        let secret = LinkSecret::parse(&"A".repeat(43)).unwrap();
        // Of 32 zero bytes, by another implementation.
        let expected = [
            0x66, 0x68, 0x7a, 0xad, 0xf8, 0x62, 0xbd, 0x77, 0x6c, 0x8f, 0xc1, 0x8b, 0x8e, 0x9f,
            0x8e, 0x20, 0x08, 0x97, 0x14, 0x85, 0x6e, 0xe2, 0x33, 0xb3, 0x90, 0x2a, 0x59, 0x1d,
            0x0d, 0x5f, 0x29, 0x25,
        ];
        assert_eq!(secret.hash(), expected);
    }
}
