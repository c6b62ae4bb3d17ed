//! The host that a request is for.

use std::net::Ipv6Addr;

/// Host and port of a `Host` field or of an HTTP/2 `:authority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority<'b> {
    text: &'b str,
    host: &'b str,
    port: Option<u16>,
}

impl<'b> Authority<'b> {
    /// Parses `host [":" port]` (RFC 9110 §7.2).
    ///
    /// Stricter than the grammar: names are letters, digits, `-` and `_` in labels of 1 to 63
    /// bytes, together at most 253; no user information, no percent-encoding, no empty host and no
    /// empty port. One final dot is removed, because clients remove it from the TLS server name as
    /// well.
    pub fn parse(value: &'b [u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let (host, rest) = if let Some(bracketed) = text.strip_prefix('[') {
            let end = bracketed.find(']')?;
            bracketed.get(..end)?.parse::<Ipv6Addr>().ok()?;
            text.split_at_checked(end + 2)?
        } else {
            let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
            (dns_name(host)?, rest)
        };
        let port = match rest.strip_prefix(':') {
            Some(digits) => Some(parse_port(digits)?),
            None if rest.is_empty() => None,
            None => return None,
        };
        Some(Self { text, host, port })
    }

    /// The complete authority as sent.
    pub fn as_str(self) -> &'b str {
        self.text
    }

    /// A DNS name without a final dot, an IPv4 address, or an IPv6 address in brackets. It is as
    /// sent, so ignore case in comparisons.
    pub fn host(self) -> &'b str {
        self.host
    }

    /// The port, if one was sent.
    pub fn port(self) -> Option<u16> {
        self.port
    }
}

fn parse_port(digits: &str) -> Option<u16> {
    if digits.len() > 5 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|port| *port != 0)
}

fn dns_name(text: &str) -> Option<&str> {
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.is_empty() || name.len() > NAME_BYTES {
        return None;
    }
    let mut label_bytes = 0_usize;
    for byte in name.bytes() {
        match byte {
            b'.' if label_bytes == 0 => return None,
            b'.' => label_bytes = 0,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => {
                label_bytes += 1;
                if label_bytes > LABEL_BYTES {
                    return None;
                }
            }
            _ => return None,
        }
    }
    (label_bytes > 0).then_some(name)
}

/// RFC 1035 §2.3.4, as text and without the final dot.
const NAME_BYTES: usize = 253;

/// RFC 1035 §2.3.4.
const LABEL_BYTES: usize = 63;

#[cfg(test)]
mod tests {
    use super::Authority;

    #[test]
    fn hosts_with_and_without_ports_are_read() {
        for (text, host, port) in [
            ("example.com", "example.com", None),
            ("Example.COM:443", "Example.COM", Some(443)),
            ("example.com.:1", "example.com", Some(1)),
            ("a_b.t.engine.localhost", "a_b.t.engine.localhost", None),
            ("127.0.0.1:65535", "127.0.0.1", Some(65535)),
            ("[::1]", "[::1]", None),
            ("[2001:db8::1]:8443", "[2001:db8::1]", Some(8443)),
        ] {
            let authority = Authority::parse(text.as_bytes()).unwrap();
            assert_eq!((authority.host(), authority.port()), (host, port), "{text}");
            assert_eq!(authority.as_str(), text);
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let long_label = "a".repeat(64);
        let long_name = ["a"; 128].join(".");
        for text in [
            "",
            ".",
            ":80",
            "a..b",
            ".a",
            "a..",
            "a:",
            "a:0",
            "a:+1",
            "a:65536",
            "a:123456",
            "a:8a",
            "a:80:80",
            "user@a",
            "user:pw@a",
            "a b",
            "a/b",
            "a?b",
            "a#b",
            "a\\b",
            "a%2eb",
            "a,b",
            "[::1",
            "::1",
            "[::1]x",
            "[::1]:",
            "[]",
            "[1.2.3.4]",
            "[fe80::1%25eth0]",
            "ä.example",
            "*.example",
            &long_label,
            &long_name,
        ] {
            assert_eq!(Authority::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Authority::parse(b"\xff"), None);
    }
}
