//! Format of values in responses.

use jiff::Timestamp;

/// A time: RFC 3339 in UTC with milliseconds, as everywhere in this API.
pub(crate) fn date(at: Timestamp) -> String {
    format!("{at:.3}")
}
