//! Validated texts that a caller chooses for a project.

use std::fmt;

/// Name of a project, for users: 1 to 64 characters, without control characters or white space at
/// either end. It is not unique, unlike the endpoint and the id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectName(String);

impl ProjectName {
    /// Validates a name.
    pub fn parse(given: String) -> Result<Self, BadText> {
        let characters = given.chars().count();
        if !(1..=MAX_NAME_CHARACTERS).contains(&characters) {
            return Err(BadText("expected 1 to 64 characters"));
        }
        if given.trim() != given {
            return Err(BadText("must not start or end with white space"));
        }
        if given.chars().any(is_invisible) {
            return Err(BadText("must not contain control characters"));
        }
        Ok(Self(given))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The caller's name for one creation (CP-4a): 1 to 128 visible ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// Validates a key.
    pub fn parse(given: String) -> Result<Self, BadText> {
        let visible = given.bytes().all(|byte| byte.is_ascii_graphic());
        if visible && (1..=MAX_KEY_BYTES).contains(&given.len()) {
            Ok(Self(given))
        } else {
            Err(BadText("expected 1 to 128 visible ASCII characters"))
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text is invalid. The error does not repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadText(&'static str);

/// True for control characters and for marks that change the direction of text. A name appears next
/// to other text in lists, mails and terminals.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Fits in a table and in a heading.
const MAX_NAME_CHARACTERS: usize = 64;
/// Long enough for a UUID, a ULID or a digest in hex or base64.
const MAX_KEY_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_readable_text() {
        for good in ["a", "My project", "Zürich 🚇", &"é".repeat(64)] {
            assert!(ProjectName::parse(good.to_owned()).is_ok(), "{good}");
        }
        for bad in [
            "",
            " a",
            "a ",
            "a\u{a0}",
            "a\nb",
            "a\u{0}",
            "a\u{202e}b",
            "a\u{200b}",
            "\t",
            &"é".repeat(65),
        ] {
            assert!(ProjectName::parse(bad.to_owned()).is_err(), "{bad:?}");
        }
    }

    /// CP-4a: the key is required, so an empty one is invalid.
    #[test]
    fn cp_4a_keys_are_visible_ascii() {
        for good in ["1", "b8f1-~!", &"k".repeat(128)] {
            assert!(IdempotencyKey::parse(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["", " ", "a b", "ü", "a\n", &"k".repeat(129)] {
            assert!(IdempotencyKey::parse(bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
