//! Format of values in responses.

use jiff::Timestamp;

/// A time: RFC 3339 in UTC with milliseconds, as everywhere in this API.
pub(crate) fn date(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// A time in milliseconds, for the first part of an id.
pub(crate) fn unix_millis(at: Timestamp) -> u64 {
    u64::try_from(at.as_millisecond()).unwrap_or(0)
}

/// Percent-encodes what is not unreserved (RFC 3986 section 2.3).
pub(crate) fn push_encoded(url: &mut String, text: &str) {
    use std::fmt::Write as _;
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            url.push(byte.into());
        } else {
            // Writing to a string does not fail.
            let _written = write!(url, "%{byte:02X}");
        }
    }
}
