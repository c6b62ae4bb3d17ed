//! Time ranges in queries of logs, events and usage.

use jiff::{SignedDuration, Timestamp};
use types::problem::Problem;

use crate::http_api::extract::Query;
use crate::http_api::problem::{HandlerResult, Refusal};

/// A time range. It includes `start` and excludes `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Beginning.
    pub start: Timestamp,
    /// End.
    pub end: Timestamp,
}

impl Range {
    /// Removes the range from a query.
    pub(crate) fn from_query(query: &mut Query, now: Timestamp) -> HandlerResult<Self> {
        let (timeline, start) = (query.text("timeline"), query.text("start"));
        let end = query.text("end");
        Self::read(timeline.as_deref(), start.as_deref(), end.as_deref(), now)
    }

    /// True if a query contains a range.
    pub(crate) fn is_present(query: &Query) -> bool {
        ["timeline", "start", "end"]
            .iter()
            .any(|name| query.has(name))
    }

    /// Parses `timeline`, `start` and `end` of a query. `timeline` (`30m`, `1h`, `12h`, `24h`,
    /// `3d`, `1w`, `30d`) ends now. It cannot be combined with `start` or `end`. Without any of
    /// them the range is the last 24 hours.
    pub fn read(
        timeline: Option<&str>,
        start: Option<&str>,
        end: Option<&str>,
        now: Timestamp,
    ) -> HandlerResult<Self> {
        if let Some(word) = timeline {
            if start.is_some() || end.is_some() {
                return Err(refused("timeline", "cannot be combined with start and end"));
            }
            let length = length_of(word)
                .ok_or_else(|| refused("timeline", "expected 30m, 1h, 12h, 24h, 3d, 1w or 30d"))?;
            return Ok(Self::before(now, length));
        }
        let moment = |text: Option<&str>, field: &str| {
            text.map(|text| {
                text.parse::<Timestamp>()
                    .map_err(|_| refused(field, "expected an RFC 3339 date and time"))
            })
            .transpose()
        };
        let end = moment(end, "end")?;
        let range = match (moment(start, "start")?, end) {
            (None, end) => Self::before(end.unwrap_or(now), DEFAULT_LENGTH),
            (Some(start), end) => Self {
                start,
                end: end.unwrap_or(now),
            },
        };
        if range.start >= range.end {
            return Err(refused("start", "must be before the end"));
        }
        if range.length() > MAX_LENGTH {
            return Err(refused("start", "a range can span at most 31 days"));
        }
        Ok(range)
    }

    pub fn length(self) -> SignedDuration {
        self.end.duration_since(self.start)
    }

    /// The range in the store's type.
    pub(crate) fn period(self) -> store::Period {
        store::Period {
            start: Some(self.start),
            end: Some(self.end),
        }
    }

    /// The range, widened to whole hours.
    pub(crate) fn to_whole_hours(self) -> Self {
        self.to_whole(HOUR_SECONDS)
    }

    /// The range, widened to whole intervals of this length in seconds.
    pub(crate) fn to_whole(self, length: i64) -> Self {
        let intervals = |count: i64| Timestamp::from_second(count.saturating_mul(length));
        Self {
            start: intervals(self.start.as_second().div_euclid(length)).unwrap_or(self.start),
            end: intervals((self.end.as_second() - 1).div_euclid(length) + 1).unwrap_or(self.end),
        }
    }

    fn before(end: Timestamp, length: SignedDuration) -> Self {
        Self {
            start: end.saturating_sub(length).unwrap_or(Timestamp::MIN),
            end,
        }
    }
}

/// A time in responses: RFC 3339 in UTC, always with milliseconds, as some SDKs require it.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    format!("{at:.3}")
}

fn refused(field: &str, message: &'static str) -> Refusal {
    Problem::invalid_request(message).with_field(field).into()
}

fn length_of(word: &str) -> Option<SignedDuration> {
    let (_, length) = TIMELINES.iter().find(|(known, _)| *known == word)?;
    Some(*length)
}

const HOUR_SECONDS: i64 = 3600;
const DAY: SignedDuration = SignedDuration::from_hours(24);
const TIMELINES: [(&str, SignedDuration); 7] = [
    ("30m", SignedDuration::from_mins(30)),
    ("1h", SignedDuration::from_hours(1)),
    ("12h", SignedDuration::from_hours(12)),
    ("24h", DAY),
    ("3d", SignedDuration::from_hours(3 * 24)),
    ("1w", SignedDuration::from_hours(7 * 24)),
    ("30d", SignedDuration::from_hours(30 * 24)),
];
const DEFAULT_LENGTH: SignedDuration = DAY;
/// The longest timeline and a day. Usage has one value per hour, so a response has at most 744.
const MAX_LENGTH: SignedDuration = SignedDuration::from_hours(31 * 24);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn read(
        timeline: Option<&str>,
        start: Option<&str>,
        end: Option<&str>,
    ) -> Result<Range, String> {
        Range::read(timeline, start, end, at("2026-03-10T12:00:00Z"))
            .map_err(|refusal| refusal.problem().field.clone().unwrap_or_default())
    }

    #[test]
    fn a_timeline_ends_now() {
        for (word, start) in [
            ("30m", "2026-03-10T11:30:00Z"),
            ("24h", "2026-03-09T12:00:00Z"),
            ("1w", "2026-03-03T12:00:00Z"),
            ("30d", "2026-02-08T12:00:00Z"),
        ] {
            let range = read(Some(word), None, None).unwrap();
            assert_eq!(range.start, at(start), "{word}");
            assert_eq!(range.end, at("2026-03-10T12:00:00Z"), "{word}");
        }
        assert_eq!(read(None, None, None), read(Some("24h"), None, None));
    }

    #[test]
    fn usage_is_reported_in_whole_hours() {
        let range = read(
            None,
            Some("2026-03-01T10:00:01Z"),
            Some("2026-03-01T12:00:00Z"),
        );
        let hours = range.unwrap().to_whole_hours();
        assert_eq!(hours.start, at("2026-03-01T10:00:00Z"));
        assert_eq!(hours.end, at("2026-03-01T12:00:00Z"));
        assert_eq!(hours.to_whole_hours(), hours);
    }

    #[test]
    fn an_explicit_range_has_an_order_and_a_maximum_length() {
        let day = read(
            None,
            Some("2026-03-01T00:00:00+02:00"),
            Some("2026-03-02T00:00:00Z"),
        );
        assert_eq!(day.unwrap().start, at("2026-02-28T22:00:00Z"));
        let open = read(None, Some("2026-03-10T00:00:00Z"), None).unwrap();
        assert_eq!(open.end, at("2026-03-10T12:00:00Z"));
        for (timeline, start, end, field) in [
            (Some("2h"), None, None, "timeline"),
            (Some(""), None, None, "timeline"),
            (Some("1h"), Some("2026-03-01T00:00:00Z"), None, "timeline"),
            (None, Some("yesterday"), None, "start"),
            (None, None, Some("2026-03-01"), "end"),
            (None, Some("2026-03-10T12:00:00Z"), None, "start"),
            (None, Some("2020-01-01T00:00:00Z"), None, "start"),
        ] {
            assert_eq!(read(timeline, start, end).unwrap_err(), field);
        }
    }
}
