//! The bearer token in the `Authorization` header.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

/// The content of `Authorization`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Bearer<'a> {
    /// No header, or another scheme: application data.
    Absent,
    /// One bearer token (RFC 6750, 2.1), not verified.
    Token(&'a str),
    /// A bearer that is empty, not text, or next to another `Authorization`. It is invalid, and no
    /// other credential is used instead.
    Malformed,
}

impl<'a> Bearer<'a> {
    /// Reads the header. The scheme's case does not matter (RFC 9110, 11.1).
    pub fn from_headers(headers: &'a HeaderMap) -> Self {
        Self::from_values(
            headers
                .get_all(AUTHORIZATION)
                .iter()
                .map(HeaderValue::as_bytes),
        )
    }

    /// Reads the values of all `Authorization` fields.
    pub fn from_values(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut found = Self::Absent;
        for (index, value) in values.enumerate() {
            let (scheme, rest) = split_scheme(value);
            let is_bearer = scheme.eq_ignore_ascii_case(b"bearer");
            if index > 0 && (is_bearer || found != Self::Absent) {
                return Self::Malformed;
            }
            if is_bearer {
                // RFC 9110, 11.4: the two are separated by spaces only.
                let token = std::str::from_utf8(rest).unwrap_or_default();
                let token = token.trim_matches(' ');
                found = if token.is_empty() || token.contains([' ', '\t', ',']) {
                    Self::Malformed
                } else {
                    Self::Token(token)
                };
            }
        }
        found
    }
}

/// Prints nothing of the token, which is a secret.
impl std::fmt::Debug for Bearer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Absent => "Absent",
            Self::Token(_) => "Token",
            Self::Malformed => "Malformed",
        })
    }
}

/// The scheme, and the rest with its leading spaces.
pub(super) fn split_scheme(value: &[u8]) -> (&[u8], &[u8]) {
    let value = value.trim_ascii_start();
    let end = value
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(value.len());
    value.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_bearer_is_a_token() {
        for (values, expected) in [
            (&[][..], Bearer::Absent),
            (&["Bearer abc"], Bearer::Token("abc")),
            (&["bEARER   abc "], Bearer::Token("abc")),
            (&["Basic dXNlcg=="], Bearer::Absent),
            (&["Bearerabc"], Bearer::Absent),
            (&["Bearer"], Bearer::Malformed),
            (&["Bearer "], Bearer::Malformed),
            (&["Bearer a b"], Bearer::Malformed),
            (&["Bearer\tabc"], Bearer::Malformed),
            (&["Bearer \tabc"], Bearer::Malformed),
            (&["Bearer\t abc"], Bearer::Malformed),
            (&["Bearer abc\t"], Bearer::Malformed),
            (&["Bearer a, Bearer b"], Bearer::Malformed),
            (&["Bearer a", "Bearer a"], Bearer::Malformed),
            (&["Bearer a", "Basic b"], Bearer::Malformed),
            (&["Basic b", "Bearer a"], Bearer::Malformed),
            (&["Basic b", "Basic c"], Bearer::Absent),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            assert_eq!(Bearer::from_headers(&headers), expected, "{values:?}");
        }
    }

    #[test]
    fn a_token_does_not_print() {
        assert_eq!(format!("{:?}", Bearer::Token("secret")), "Token");
    }
}
