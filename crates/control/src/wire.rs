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
