//! The code that a user copies from a device into a browser (RFC 8628 section 6.1).

use aws_lc_rs::hmac;
use store::SecretHash;

use crate::app::App;
use crate::http_api::problem::HandlerResult;
use crate::runtime::random;

/// Eight letters, 34 bits: enough for ten minutes behind a throttle, and short enough to type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct UserCode([u8; LETTERS]);

impl UserCode {
    /// Draws a code. Bytes that would make some letters more likely than others are drawn again.
    pub(super) fn draw() -> HandlerResult<Self> {
        let mut letters = [0; LETTERS];
        let mut at = 0;
        loop {
            for byte in random::bytes::<16>()? {
                let Some(letter) = letters.get_mut(at) else {
                    return Ok(Self(letters));
                };
                if let Some(drawn) = letter_of(byte) {
                    *letter = drawn;
                    at += 1;
                }
            }
        }
    }

    /// Parses a code that a user typed: any case, with dashes and spaces anywhere.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TYPED_BYTES {
            return None;
        }
        let letters: Vec<u8> = text
            .bytes()
            .filter(|byte| !matches!(byte, b'-' | b' '))
            .map(|byte| byte.to_ascii_uppercase())
            .collect();
        let letters: [u8; LETTERS] = letters.try_into().ok()?;
        letters
            .iter()
            .all(|letter| ALPHABET.contains(letter))
            .then_some(Self(letters))
    }

    /// The code as users see it: `XXXX-XXXX`.
    pub(super) fn reveal(self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let (left, right) = text.split_at_checked(LETTERS / 2).unwrap_or((&text, ""));
        format!("{left}-{right}")
    }

    /// The keyed hash to store. All codes can be tried against a plain hash within a minute. With
    /// the key, a copy of the database approves nothing.
    pub(super) fn hash(self, app: &App) -> HandlerResult<SecretHash> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &app.keys.derive("oauth-user-code")?);
        let mut hash = [0; 32];
        for (byte, given) in hash.iter_mut().zip(hmac::sign(&key, &self.0).as_ref()) {
            *byte = *given;
        }
        Ok(SecretHash(hash))
    }
}

/// A pending code is a secret.
impl std::fmt::Debug for UserCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserCode")
    }
}

/// The letter for a byte. Each of the twenty letters has twelve bytes, and the remaining bytes have
/// none.
fn letter_of(byte: u8) -> Option<u8> {
    ALPHABET.get(usize::from(byte / 12)).copied()
}

/// RFC 8628 section 6.1: no vowels, which avoids words, and no letters that look alike.
const ALPHABET: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const LETTERS: usize = 8;
/// Allows for dashes and spaces at any position.
const MAX_TYPED_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_parsed_in_any_typed_form() {
        let code = UserCode::draw().unwrap();
        let shown = code.reveal();
        assert_eq!((shown.len(), &shown[4..5]), (9, "-"));
        let spelled: String = shown.chars().flat_map(|letter| [letter, ' ']).collect();
        for typed in [
            shown.clone(),
            shown.to_lowercase(),
            shown.replace('-', ""),
            shown.replace('-', " "),
            spelled,
            format!(" {shown} "),
        ] {
            assert_eq!(UserCode::parse(&typed), Some(code), "{typed}");
        }
        let long = format!("{shown}{}", "-".repeat(64));
        for bad in [
            "",
            "BCDF-GHJ",
            "BCDF-GHJKL",
            "ACDF-GHJK",
            "BCDF-GHJ1",
            "BCDF_GHJK",
            &long,
        ] {
            assert_eq!(UserCode::parse(bad), None, "{bad}");
        }
        assert!(!format!("{code:?}").contains(&shown));
    }

    #[test]
    fn each_letter_is_as_likely_as_another() {
        let letters: Vec<_> = (0..=u8::MAX).filter_map(letter_of).collect();
        assert_eq!(letters.len(), 240);
        for (letter, drawn) in ALPHABET.iter().zip(letters.chunks(12)) {
            assert_eq!(drawn, [*letter; 12]);
        }
        assert_ne!(UserCode::draw().unwrap(), UserCode::draw().unwrap());
    }
}
