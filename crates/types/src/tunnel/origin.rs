//! Origins of web pages (RFC 6454), as a tunnel lists them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The origin of a page, as browsers write it: `https://app.example.com`, in lower case and without
/// the default port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WebOrigin(String);

/// A text that is not the origin of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an origin such as https://app.example.com: a scheme, a host and perhaps a port")]
pub struct BadOrigin;

/// The longest name (RFC 1035) with scheme and port.
const MAX_BYTES: usize = 253 + 16;

impl WebOrigin {
    /// The origin as it is written in an `Origin` field.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for WebOrigin {
    type Err = BadOrigin;

    fn from_str(text: &str) -> Result<Self, BadOrigin> {
        if text.len() > MAX_BYTES {
            return Err(BadOrigin);
        }
        let text = text.to_ascii_lowercase();
        let (scheme, authority) = text.split_once("://").ok_or(BadOrigin)?;
        let usual = match scheme {
            "https" => ":443",
            "http" => ":80",
            _ => return Err(BadOrigin),
        };
        let authority = authority.strip_suffix(usual).unwrap_or(authority);
        let is_ipv6 = authority.starts_with('[');
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !is_ipv6 || host.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let is_host = if is_ipv6 {
            let inner = host
                .strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'));
            inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
        } else {
            let is_label = |label: &str| {
                !label.is_empty()
                    && label
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            };
            host.split('.').all(is_label)
        };
        let is_port = port.is_none_or(|port| {
            port.bytes().all(|byte| byte.is_ascii_digit())
                && port.parse::<u16>().is_ok_and(|n| n > 0)
        });
        if !is_host || !is_port {
            return Err(BadOrigin);
        }
        Ok(Self(format!("{scheme}://{authority}")))
    }
}

impl TryFrom<String> for WebOrigin {
    type Error = BadOrigin;

    fn try_from(text: String) -> Result<Self, BadOrigin> {
        text.parse()
    }
}

impl From<WebOrigin> for String {
    fn from(origin: WebOrigin) -> Self {
        origin.0
    }
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_have_one_spelling() {
        for (given, kept) in [
            ("https://app.example.com", "https://app.example.com"),
            ("HTTPS://App.Example.com:443", "https://app.example.com"),
            (
                "https://app.example.com:8443",
                "https://app.example.com:8443",
            ),
            ("http://localhost:3000", "http://localhost:3000"),
            ("http://localhost:80", "http://localhost"),
            ("http://[::1]:3000", "http://[::1]:3000"),
        ] {
            assert_eq!(given.parse::<WebOrigin>().unwrap().as_str(), kept);
        }
        for bad in [
            "",
            "null",
            "*",
            "https://",
            "app.example.com",
            "https://*.example.com",
            "https://a.example/",
            "https://a.example/path",
            "https://a@b.example",
            "https://a.example:0",
            "https://a.example:x",
            "https://a..example",
            "ftp://a.example",
            "https://[::1",
            "https://a b",
        ] {
            assert!(bad.parse::<WebOrigin>().is_err(), "{bad}");
        }
    }
}
