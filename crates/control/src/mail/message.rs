//! One mail: plain text to one recipient.
//!
//! The message builder of `lettre` writes other bytes, such as a lower-case `b` in encoded words,
//! and needs four more crates for the same number of lines.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;

use super::Sender;
use crate::http_api::user_text::printable;
use crate::people::email::Email;

/// Plain text for one address. `Debug` hides it, because the text may contain a link that opens an
/// account.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    to: Email,
    subject: String,
    text: String,
}

impl Message {
    /// Creates a message. Invisible characters of the subject become spaces, so that a name can
    /// neither add header fields nor change the direction of the line.
    pub fn new(to: Email, subject: impl AsRef<str>, text: impl Into<String>) -> Self {
        Self {
            to,
            subject: printable(subject.as_ref()),
            text: text.into(),
        }
    }

    /// The recipient.
    pub fn to(&self) -> &Email {
        &self.to
    }

    /// The message in the form of RFC 5322. `id` is unique among the mails of this platform.
    pub fn to_rfc_5322(&self, from: &Sender, now: Timestamp, id: &str) -> String {
        let date = jiff::fmt::rfc2822::to_string(&now.to_zoned(jiff::tz::TimeZone::UTC));
        let mut mail = String::new();
        for (name, value) in [
            ("From", from.field().as_str()),
            ("To", self.to.as_str()),
            ("Subject", &encoded(&self.subject)),
            ("Date", date.as_deref().unwrap_or_default()),
            ("Message-ID", &format!("<{id}@{}>", from.domain())),
            // RFC 3834 section 5: prevents automatic replies.
            ("Auto-Submitted", "auto-generated"),
            ("MIME-Version", "1.0"),
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Transfer-Encoding", "8bit"),
        ] {
            mail.push_str(name);
            mail.push_str(": ");
            mail.push_str(value);
            mail.push_str("\r\n");
        }
        mail.push_str("\r\n");
        for line in self.text.lines() {
            mail.push_str(line);
            mail.push_str("\r\n");
        }
        mail
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

/// The subject for a header field: unchanged if it is ASCII, else as encoded words of RFC 2047.
fn encoded(subject: &str) -> String {
    if subject.is_ascii() && subject.len() <= MAX_SUBJECT_BYTES {
        return subject.to_owned();
    }
    let mut words: Vec<String> = Vec::new();
    let mut piece = String::new();
    for character in subject.chars() {
        if piece.len() + character.len_utf8() > WORD_BYTES {
            words.push(std::mem::take(&mut piece));
        }
        piece.push(character);
    }
    words.push(piece);
    let word = |piece: &String| format!("=?utf-8?B?{}?=", BASE64_STANDARD.encode(piece));
    words.iter().map(word).collect::<Vec<_>>().join("\r\n ")
}

/// RFC 5322 section 2.1.1 recommends lines of at most 78 characters, including the field's name.
const MAX_SUBJECT_BYTES: usize = 68;

/// An encoded word has at most 75 characters (RFC 2047 section 2), and 12 of them are delimiters.
/// The other 63 characters of base64 contain 45 bytes.
const WORD_BYTES: usize = 45;

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(subject: &str, text: &str) -> String {
        let to = Email::parse("ada@example.com").unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        Message::new(to, subject, text).to_rfc_5322(&Sender::default(), now, "1")
    }

    #[test]
    fn a_mail_has_the_fields_that_readers_expect() {
        insta::assert_snapshot!(
            mail("Set a new password", "Hello,\n\nä line.\n").replace("\r\n", "\n")
        );
    }

    #[test]
    fn a_subject_cannot_add_fields() {
        let text = mail("Join a\r\nBcc: eve@example.com\r\n\r\nb", "x");
        let subject = text
            .lines()
            .find(|line| line.starts_with("Subject:"))
            .unwrap();
        assert!(
            subject.contains("Join a  Bcc: eve@example.com"),
            "{subject}"
        );
        assert_eq!(text.matches("Bcc").count(), 1);
    }

    #[test]
    fn a_subject_that_is_not_ascii_has_encoded_words() {
        let name = "ü".repeat(60);
        let text = mail(&name, "x");
        let start = text.find("Subject: ").unwrap() + 9;
        let end = text.find("\r\nDate:").unwrap();
        let mut decoded = Vec::new();
        for word in text[start..end].split("\r\n ") {
            assert!(word.len() <= 75, "{word}");
            let inner = word.strip_prefix("=?utf-8?B?").unwrap();
            decoded.extend(
                BASE64_STANDARD
                    .decode(inner.strip_suffix("?=").unwrap())
                    .unwrap(),
            );
        }
        assert_eq!(String::from_utf8(decoded).unwrap(), name);
    }

    #[test]
    fn lines_end_with_cr_lf() {
        let text = mail("x", "one\r\ntwo\nthree");
        assert!(text.ends_with("\r\n\r\none\r\ntwo\r\nthree\r\n"), "{text}");
    }

    #[test]
    fn debug_output_hides_the_text() {
        let to = Email::parse("ada@example.com").unwrap();
        let message = Message::new(to, "subject", "secret");
        assert!(!format!("{message:?}").contains("secret"));
    }
}
