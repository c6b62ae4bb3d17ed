//! The contact for reports of abuse, which pages show.

use std::fmt;
use std::str::FromStr;

/// A mail address or an `https` address. It consists of characters that need no escaping in an
/// attribute in double quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbuseContact(String);

/// The reason that a text is not an [`AbuseContact`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is neither a mail address such as abuse@example.com nor an https address such as \
     https://example.com/abuse"
)]
pub struct AbuseContactError;

impl AbuseContact {
    /// The text for users.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The target of a link.
    pub fn href(&self) -> String {
        if self.0.starts_with(SCHEME) {
            self.0.clone()
        } else {
            format!("mailto:{}", self.0)
        }
    }
}

impl FromStr for AbuseContact {
    type Err = AbuseContactError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_contact = text.len() <= MAX_BYTES
            && match text.strip_prefix(SCHEME) {
                Some(rest) => is_address(rest),
                None => is_mailbox(text),
            };
        if is_contact {
            Ok(Self(text.to_owned()))
        } else {
            Err(AbuseContactError)
        }
    }
}

impl fmt::Display for AbuseContact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An address without its scheme: a host, perhaps a port, and a path.
fn is_address(rest: &str) -> bool {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (host, port) = authority
        .split_once(':')
        .map_or((authority, None), |(host, port)| (host, Some(port)));
    let is_in_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/?#%=+,;:@!*".contains(&byte);
    is_host(host)
        && port.is_none_or(|port| port.parse::<u16>().is_ok())
        && path.bytes().all(is_in_path)
}

fn is_mailbox(text: &str) -> bool {
    let Some((local, host)) = text.split_once('@') else {
        return false;
    };
    let is_in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._+".contains(&byte);
    (1..=MAX_LOCAL_BYTES).contains(&local.len())
        && local.bytes().all(is_in_name)
        && is_host(host)
        && host.contains('.')
}

fn is_host(host: &str) -> bool {
    host.split('.').all(|label| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

const SCHEME: &str = "https://";

/// Longest mailbox (RFC 5321 section 4.5.3.1), and as much as a page shows of an address.
const MAX_BYTES: usize = 254;
/// Longest local part of a mailbox (RFC 5321 section 4.5.3.1.1).
const MAX_LOCAL_BYTES: usize = 64;
/// Longest label of a host name (RFC 1035 section 2.3.4).
const MAX_LABEL_BYTES: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_and_https_addresses_are_contacts() {
        for (text, href) in [
            ("abuse@example.com", "mailto:abuse@example.com"),
            ("abuse+svc@example.co.uk", "mailto:abuse+svc@example.co.uk"),
            (
                "https://example.com/abuse?of=svc",
                "https://example.com/abuse?of=svc",
            ),
            ("https://example.com:8443", "https://example.com:8443"),
        ] {
            let contact: AbuseContact = text.parse().unwrap();
            assert_eq!((contact.as_str(), contact.href().as_str()), (text, href));
        }
        let long = format!("https://example.com/{}", "a".repeat(MAX_BYTES));
        for text in [
            "",
            "abuse",
            "@example.com",
            "abuse@",
            "abuse@localhost",
            "abuse@-example.com",
            "a b@example.com",
            "a@b@example.com",
            "a\"@example.com",
            "http://example.com/",
            "https://",
            "https:///abuse",
            "https://example.com:70000/",
            "https://user@example.com/",
            "https://example.com/\"onclick=x",
            "https://example.com/<b>",
            "https://example.com/&amp",
            "javascript:alert(1)",
            &long,
        ] {
            assert_eq!(
                text.parse::<AbuseContact>(),
                Err(AbuseContactError),
                "{text}"
            );
        }
    }
}
