//! Sender of mails.

use crate::people::email::Email;

/// A name and an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    name: Option<String>,
    /// The address in the header and for the mail server.
    address: String,
}

/// A no-reply address, for mails that stay on this machine.
impl Default for Sender {
    fn default() -> Self {
        Self {
            name: Some("svc".to_owned()),
            address: "no-reply@svc.invalid".to_owned(),
        }
    }
}

impl Sender {
    /// Parses `address` or `Name <address>`. The name consists of ASCII letters, digits, spaces,
    /// and other characters that need no quotes.
    pub fn parse(text: &str) -> Option<Self> {
        let Some(inner) = text.trim().strip_suffix('>') else {
            let address = Email::parse(text).ok()?.as_str().to_owned();
            return Some(Self {
                name: None,
                address,
            });
        };
        let (name, address) = inner.rsplit_once('<')?;
        let name = name.trim();
        // RFC 5322 section 3.2.3: `atext` and spaces; a dot would need quotes.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" -_'!&+/".contains(&byte);
        if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(plain) {
            return None;
        }
        Some(Self {
            name: Some(name.to_owned()),
            address: Email::parse(address).ok()?.as_str().to_owned(),
        })
    }

    /// The address without the name.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The domain of the address.
    pub fn domain(&self) -> &str {
        self.address.rsplit('@').next().unwrap_or_default()
    }

    /// The content of the field `From`.
    pub fn field(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} <{}>", self.address),
            None => self.address.clone(),
        }
    }
}

/// A header line has 78 characters (RFC 5322 section 2.1.1).
const MAX_NAME: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_optional_and_cannot_add_fields() {
        let field = |text: &str| Sender::parse(text).map(|sender| sender.field());
        assert_eq!(field("a@b.example").as_deref(), Some("a@b.example"));
        assert_eq!(
            field("Our Tunnels <No-Reply@B.example>").as_deref(),
            Some("Our Tunnels <no-reply@b.example>")
        );
        for bad in [
            "",
            "<a@b.example>",
            "Name a@b.example>",
            "\"x\" <a@b.example>",
            "a\r\nBcc: c <a@b.example>",
            "Ü <a@b.example>",
            "Name <a@b.example",
            "Name <nobody>",
        ] {
            assert_eq!(field(bad), None, "{bad}");
        }
    }
}
