//! Request targets.

use std::fmt;

use crate::authority::Authority;
use crate::method::Method;

/// Path and query of a request.
///
/// `Debug` prints only the path: a query may contain a credential.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestTarget<'b> {
    path: &'b str,
    query: Option<&'b str>,
}

impl<'b> RequestTarget<'b> {
    /// Parses an origin-form target or `*` (RFC 9112 §3.2.1, §3.2.4), such as the `:path` of an
    /// HTTP/2 request. The error is a reason that may be shown to the client.
    ///
    /// Every visible ASCII byte except `#` is allowed: browsers send several that RFC 3986 requires
    /// to be encoded.
    pub fn parse(method: Method<'_>, raw: &'b [u8]) -> Result<Self, &'static str> {
        let raw = visible_ascii(raw)?;
        if raw == "*" {
            return if method == Method::Options {
                Ok(Self {
                    path: raw,
                    query: None,
                })
            } else {
                Err("the target * is for OPTIONS alone")
            };
        }
        if !raw.starts_with('/') {
            return Err("the target is not a path");
        }
        Ok(Self::split(raw))
    }

    /// Parses the target of an HTTP/1.1 request, which may also be in absolute form (RFC 9112
    /// §3.2.2). `host` is the value of the `Host` field. A target with another authority is
    /// refused, because parsers disagree about which of the two is used.
    pub(crate) fn parse_http1(
        method: Method<'_>,
        raw: &'b [u8],
        host: &[u8],
    ) -> Result<Self, &'static str> {
        if raw.starts_with(b"/") || raw == b"*" {
            return Self::parse(method, raw);
        }
        let raw = visible_ascii(raw)?;
        let rest = [b"https://".as_slice(), b"http://"]
            .iter()
            .find(|scheme| {
                raw.as_bytes()
                    .get(..scheme.len())
                    .is_some_and(|s| s.eq_ignore_ascii_case(scheme))
            })
            .and_then(|scheme| raw.get(scheme.len()..))
            .ok_or("the target is neither a path nor an http or https address")?;
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if Authority::parse(authority.as_bytes()).is_none()
            || !authority.as_bytes().eq_ignore_ascii_case(host)
        {
            return Err("the authority of the target is not the Host");
        }
        if target.is_empty() && method == Method::Options {
            // RFC 9112 §3.2.4: without a path the request is for the server as a whole.
            return Ok(Self {
                path: "*",
                query: None,
            });
        }
        let target = Self::split(target);
        let path = if target.path.is_empty() {
            "/"
        } else {
            target.path
        };
        Ok(Self { path, ..target })
    }

    /// The path as sent. It starts with `/`, or is `*` for a server-wide `OPTIONS`.
    pub fn path(self) -> &'b str {
        self.path
    }

    /// The part after the first `?`, which may be empty.
    pub fn query(self) -> Option<&'b str> {
        self.query
    }

    /// The target with another path; `None` if the path is invalid.
    pub fn with_path(self, path: &'b str) -> Option<Self> {
        let valid = path.starts_with('/') && !path.contains('?') && is_visible(path.as_bytes());
        valid.then_some(Self { path, ..self })
    }

    /// The target without its query.
    #[must_use]
    pub fn without_query(self) -> Self {
        Self {
            query: None,
            ..self
        }
    }

    /// The target with another query; `None` if the query is invalid.
    pub fn with_query(self, query: &'b str) -> Option<Self> {
        let query = is_visible(query.as_bytes()).then_some(query)?;
        Some(Self {
            query: Some(query),
            ..self
        })
    }

    fn split(raw: &'b str) -> Self {
        match raw.split_once('?') {
            Some((path, query)) => Self {
                path,
                query: Some(query),
            },
            None => Self {
                path: raw,
                query: None,
            },
        }
    }
}

impl fmt::Debug for RequestTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = if self.query.is_some() { "?…" } else { "" };
        write!(f, "{:?}{query}", self.path)
    }
}

/// The target with the bytes from 0x80 percent-encoded (RFC 3986 §2.1), as browsers send them.
/// `None` if it has no such bytes.
pub fn encode_target(raw: &[u8]) -> Option<Vec<u8>> {
    if raw.is_ascii() {
        return None;
    }
    let mut encoded = Vec::with_capacity(raw.len() * 3);
    for byte in raw {
        if byte.is_ascii() {
            encoded.push(*byte);
        } else {
            let digit = |value: u8| HEX.get(usize::from(value)).copied().unwrap_or_default();
            encoded.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    Some(encoded)
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Result of [`encode_request_line`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EncodedLine {
    /// The target has only ASCII so far, or there is none.
    Unchanged,
    /// The target has other bytes, and its line has not ended.
    Partial,
    /// The request line with an encoded target.
    Encoded {
        /// The line with its end.
        line: Vec<u8>,
        /// Bytes of the line in the buffer.
        len: usize,
    },
}

/// Encodes the target of the request line at the start of `buf`, see [`encode_target`].
pub fn encode_request_line(buf: &[u8]) -> EncodedLine {
    let end = buf.iter().position(|byte| *byte == b'\n');
    let line = buf
        .get(..end.map_or(buf.len(), |end| end + 1))
        .unwrap_or(buf);
    let Some(start) = line.iter().position(|byte| *byte == b' ') else {
        return EncodedLine::Unchanged;
    };
    let (method, rest) = line.split_at(start + 1);
    if end.is_none() {
        return if rest.is_ascii() {
            EncodedLine::Unchanged
        } else {
            EncodedLine::Partial
        };
    }
    let version = rest.iter().rposition(|byte| *byte == b' ');
    let (target, version) = rest.split_at(version.unwrap_or(rest.len()));
    match encode_target(target) {
        Some(encoded) => EncodedLine::Encoded {
            line: [method, &encoded, version].concat(),
            len: line.len(),
        },
        None => EncodedLine::Unchanged,
    }
}

fn is_visible(raw: &[u8]) -> bool {
    raw.iter()
        .all(|byte| byte.is_ascii_graphic() && *byte != b'#')
}

fn visible_ascii(raw: &[u8]) -> Result<&str, &'static str> {
    if !is_visible(raw) {
        return Err("the target has a fragment or a byte that is not visible ASCII");
    }
    std::str::from_utf8(raw).map_err(|_| "the target is not ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_a_request_line_is_encoded() {
        let line = b"GET /caf\xc3\xa9?a=\xe9 HTTP/1.1\r\n";
        let head = [&line[..], b"Host: \xe9\r\n\r\n"].concat();
        let encoded = EncodedLine::Encoded {
            line: b"GET /caf%C3%A9?a=%E9 HTTP/1.1\r\n".to_vec(),
            len: line.len(),
        };
        assert_eq!(encode_request_line(&head), encoded);
        for line in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"G\xe9T",
            b"G\xe9T / HTTP/1.1\r\n",
            b"",
        ] {
            assert_eq!(encode_request_line(line), EncodedLine::Unchanged);
        }
        assert_eq!(encode_request_line(b"GET /\xe9"), EncodedLine::Partial);
    }
}
