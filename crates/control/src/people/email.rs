//! Email addresses, with the checks that the platform needs.
//!
//! Stricter than the crate `email_address`, which accepts quoted local parts, domains with any
//! character of an atom, and addresses longer than 254 bytes.

use std::fmt;

use crate::http_api::user_text::is_invisible;

/// An address that can be written into a mail header and compared with another.
///
/// All letters are lower case. Users often vary the case when they type an address, and mail
/// servers that distinguish `Ada@` and `ada@` are rare. Only a mail that arrives proves that an
/// address exists.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Email(String);

impl Email {
    /// Parses an address that a user has typed. White space around it is dropped.
    ///
    /// # Errors
    /// The text is not of the form `local@domain`, or has characters that need quotes in a mail
    /// header.
    pub fn parse(text: &str) -> Result<Self, BadEmail> {
        let text = text.trim();
        // The Kelvin sign becomes a `k`, but its mailbox is another one.
        let becomes_ascii = |letter: char| {
            !letter.is_ascii() && letter.to_lowercase().any(|lower| lower.is_ascii())
        };
        if text.chars().any(becomes_ascii) {
            return Err(BadEmail);
        }
        let text = text.to_lowercase();
        let (local, domain) = text.rsplit_once('@').ok_or(BadEmail)?;
        let fits = text.len() <= MAX_BYTES && local.len() <= MAX_LOCAL_BYTES;
        let local_is_plain = !local.is_empty()
            && !local.starts_with('.')
            && !local.ends_with('.')
            && !local.contains("..")
            && local.chars().all(is_atom);
        let domain_is_plain = domain.split('.').all(is_label);
        if fits && local_is_plain && domain_is_plain {
            Ok(Self(text))
        } else {
            Err(BadEmail)
        }
    }

    /// The address, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `Debug` shows only the domain, because addresses are personal data and must not appear in logs.
impl fmt::Debug for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let domain = self.0.split('@').next_back().unwrap_or_default();
        write!(f, "…@{domain}")
    }
}

/// Not an address. The message is for the user who typed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("This is not an email address.")]
pub struct BadEmail;

/// A character of an unquoted local part: RFC 5321 section 4.1.2, `atext`, and the dot; beyond ASCII
/// the letters and digits of all languages (RFC 6531 section 3.3). Combining marks are refused: they
/// give a letter a second spelling, and mail servers compare bytes.
fn is_atom(letter: char) -> bool {
    letter.is_ascii_alphanumeric()
        || "!#$%&'*+-/=?^_`{|}~.".contains(letter)
        || (!letter.is_ascii() && letter.is_alphanumeric() && !is_invisible(letter))
}

/// A label of a domain name, international ones in their ASCII form (RFC 1034 section 3.5).
fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// RFC 5321 section 4.5.3.1.3: a path has 256 octets, two of them angle brackets.
const MAX_BYTES: usize = 254;

/// RFC 5321 section 4.5.3.1.1.
const MAX_LOCAL_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_fit_into_a_mail_header_are_accepted() {
        for (typed, kept) in [
            (" Ada@Example.COM ", "ada@example.com"),
            ("admin@localhost", "admin@localhost"),
            (
                "a+b.c_d@xn--bcher-kva.example",
                "a+b.c_d@xn--bcher-kva.example",
            ),
            ("JÖRG@example.com", "jörg@example.com"),
            ("用户@example.com", "用户@example.com"),
            ("ΕΛΛΗΝΙΚΆ.1@example.com", "ελληνικά.1@example.com"),
        ] {
            assert_eq!(Email::parse(typed).unwrap().as_str(), kept);
        }
    }

    #[test]
    fn addresses_that_could_inject_mail_headers_are_refused() {
        let long = format!("{}@example.com", "a".repeat(65));
        let longer = format!("a@{}.com", "a.".repeat(130));
        for bad in [
            "",
            "ada",
            "@example.com",
            "ada@",
            "ada@example..com",
            ".ada@example.com",
            "a..da@example.com",
            "ada@-example.com",
            "ada@exam ple.com",
            "ada\r\nBcc: eve@example.com",
            "ada@example.com\r\nBcc: eve",
            "ada,eve@example.com",
            "\"ada\"@example.com",
            "ada@[127.0.0.1]",
            "ada@b\u{fc}cher.example",
            "a\u{308}da@example.com",
            "\u{202e}ada@example.com",
            "ada\u{200b}@example.com",
            "ad\u{a0}a@example.com",
            "ada\u{3164}@example.com",
            "ada\u{2028}bcc@example.com",
            "ada\u{ff0c}eve@example.com",
            "ada\u{fe0f}@example.com",
            "mi\u{212a}e@example.com",
            "mike@\u{212a}.example",
            "\u{130}da@example.com",
            &long,
            &longer,
        ] {
            assert_eq!(Email::parse(bad), Err(BadEmail), "{bad:?}");
        }
    }

    #[test]
    fn debug_output_shows_only_the_domain() {
        let email = Email::parse("ada@example.com").unwrap();
        assert_eq!(format!("{email:?}"), "…@example.com");
    }
}
