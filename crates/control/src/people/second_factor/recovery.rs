//! Recovery codes, for users who have lost their second factor.
//!
//! Each has 80 random bits, so a plain hash is enough to store it (see
//! [`crate::people::secret_link`]).

use aws_lc_rs::digest;
use credentials::Secret;

/// One code, in the form that the user writes down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryCode(Secret);

impl RecoveryCode {
    /// Creates a code from random bytes.
    pub fn new(random: [u8; 10]) -> Self {
        let mut wide = [0; 16];
        if let Some(tail) = wide.last_chunk_mut() {
            *tail = random;
        }
        let bits = u128::from_be_bytes(wide);
        let character = |place: usize| {
            let digit = usize::try_from(bits >> (5 * place) & 31).unwrap_or_default();
            ALPHABET.get(digit).copied().unwrap_or(b'0')
        };
        let text: Vec<u8> = (0..CHARACTERS).rev().map(character).collect();
        Self(Secret::new(text))
    }

    /// Parses typed text. Case, spaces and dashes are ignored, and letters that look like digits
    /// are accepted.
    pub fn read(text: &str) -> Option<Self> {
        let mut code = Vec::new();
        for byte in text.bytes().filter(|byte| !matches!(byte, b' ' | b'-')) {
            let plain = match byte.to_ascii_lowercase() {
                b'o' => b'0',
                b'i' | b'l' => b'1',
                other => other,
            };
            if !ALPHABET.contains(&plain) || code.len() == CHARACTERS {
                return None;
            }
            code.push(plain);
        }
        (code.len() == CHARACTERS).then(|| Self(Secret::new(code)))
    }

    /// The code in groups of characters, for the user to write down.
    pub fn reveal(&self) -> String {
        let groups: Vec<&str> = self
            .0
            .expose()
            .chunks(4)
            .filter_map(|group| std::str::from_utf8(group).ok())
            .collect();
        groups.join("-")
    }

    /// The hash to store.
    pub fn hash(&self) -> [u8; 32] {
        let mut hash = [0; 32];
        let digest = digest::digest(&digest::SHA256, self.0.expose());
        for (byte, given) in hash.iter_mut().zip(digest.as_ref()) {
            *byte = *given;
        }
        hash
    }
}

/// Number of codes that a user gets in one set.
pub const CODES_PER_SET: usize = 8;

/// Crockford's base32: it has no i, l, o and u.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// 80 bits in base32.
const CHARACTERS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_parsed_as_users_type_it() {
        let code = RecoveryCode::new([0, 0x44, 0x32, 0x14, 0xc7, 0x42, 0x54, 0xb6, 0x35, 0xcf]);
        assert_eq!(code.reveal(), "0123-4567-89ab-cdef");
        for typed in [
            "0123-4567-89ab-cdef",
            "O I23 4567 89AB CDEF",
            "ol234567-89abcdef",
        ] {
            assert_eq!(RecoveryCode::read(typed), Some(code.clone()), "{typed}");
        }
        for bad in [
            "",
            "0123-4567-89ab-cde",
            "0123-4567-89ab-cdef0",
            "0123-4567-89ab-cdeu",
            "123456",
        ] {
            assert_eq!(RecoveryCode::read(bad), None, "{bad}");
        }
        assert_ne!(code.hash(), RecoveryCode::new([1; 10]).hash());
        assert!(!format!("{code:?}").contains("0123"));
    }
}
