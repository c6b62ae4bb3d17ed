//! Percent-encoding of text in addresses.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

/// Escapes everything but the unreserved characters (RFC 3986 section 2.3).
pub fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_encoded_byte_by_byte() {
        assert_eq!(
            escaped(r#"{"a":"é"}"#).to_string(),
            "%7B%22a%22%3A%22%C3%A9%22%7D"
        );
    }
}
