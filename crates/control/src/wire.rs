//! Format of values in responses.

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

/// A time: RFC 3339 in UTC with milliseconds, as everywhere in this API.
pub(crate) fn date(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// A time in milliseconds, for the first part of an id.
pub(crate) fn unix_millis(at: Timestamp) -> u64 {
    u64::try_from(at.as_millisecond()).unwrap_or(0)
}

/// Percent-encodes what is not unreserved (RFC 3986 section 2.3).
pub(crate) fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

/// The bytes that [`encoded`] escapes.
pub(crate) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
