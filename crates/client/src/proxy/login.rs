//! User name and password for a proxy.

use std::fmt;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::{ParseProxyError, ProxySyntax};

/// User name and password for a proxy. They are sent only to the proxy.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ProxyLogin {
    user: Vec<u8>,
    password: Vec<u8>,
}

impl ProxyLogin {
    /// Parses `user:password`, percent-encoded.
    pub(super) fn parse(text: &str) -> Result<Self, ParseProxyError> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let decode = |text| percent_decode_str(text).collect::<Vec<u8>>();
        let (user, password) = (decode(user), decode(password));
        let is_control = |part: &[u8]| part.iter().any(u8::is_ascii_control);
        let is_sendable = |part: &[u8]| part.len() <= MAX_PART && !is_control(part);
        // RFC 7617 section 2: a colon would end the user name.
        let is_user = !user.is_empty() && !user.contains(&b':');
        if !is_user || !is_sendable(&user) || !is_sendable(&password) {
            return Err(ParseProxyError::new(ProxySyntax::Login));
        }
        Ok(Self { user, password })
    }

    /// The credentials of `Basic` (RFC 7617 section 2).
    pub(super) fn expose_basic(&self) -> String {
        base64(&[&self.user, &b":"[..], &self.password].concat())
    }

    /// The message of RFC 1929 section 2.
    pub(super) fn expose_socks5(&self) -> Vec<u8> {
        let mut message = vec![1];
        for part in [&self.user, &self.password] {
            // The length of each part was checked on creation.
            message.push(u8::try_from(part.len()).unwrap_or(u8::MAX));
            message.extend_from_slice(part);
        }
        message
    }

    /// `user:password`, percent-encoded.
    pub(super) fn expose_encoded(&self) -> String {
        let encode = |part: &[u8]| percent_encode(part, NON_ALPHANUMERIC).to_string();
        format!("{}:{}", encode(&self.user), encode(&self.password))
    }
}

impl fmt::Debug for ProxyLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyLogin(…)")
    }
}

/// Base64 with padding (RFC 4648 section 4). A library for this one value would be a further
/// dependency of every agent.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index| u32::from(group.get(index).copied().unwrap_or_default());
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for position in 0..4_usize {
            let index = usize::try_from((bits >> (18 - 6 * position)) & 63).unwrap_or_default();
            let digit = ALPHABET.get(index).filter(|_| position <= group.len());
            text.push(digit.copied().map_or('=', char::from));
        }
    }
    text
}

/// RFC 4648 section 4.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// RFC 1929 section 2: each length is one byte.
const MAX_PART: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648 section 10.
    #[test]
    fn base64_has_padding() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
