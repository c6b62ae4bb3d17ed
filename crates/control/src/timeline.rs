//! Ranges of time that logs, events and usage are asked for.

use jiff::{SignedDuration, Timestamp};
use types::problem::Problem;

/// A range of time: `start` is in it, `end` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Beginning.
    pub start: Timestamp,
    /// End.
    pub end: Timestamp,
}

impl Range {
    /// Reads `timeline`, `start` and `end` of a query. `timeline` (`30m`, `1h`, `12h`, `24h`,
    /// `3d`, `1w`, `30d`) ends now; it and `start` / `end` exclude each other; without any of
    /// them it is the last 24 hours.
    pub fn read(
        timeline: Option<&str>,
        start: Option<&str>,
        end: Option<&str>,
        now: Timestamp,
    ) -> Result<Self, Problem> {
        let fault = |field: &str, message: &'static str| {
            Problem::invalid_request(message).with_field(field)
        };
        if let Some(word) = timeline {
            if start.is_some() || end.is_some() {
                return Err(fault("timeline", "excludes start and end"));
            }
            let length = length_of(word)
                .ok_or_else(|| fault("timeline", "expected 30m, 1h, 12h, 24h, 3d, 1w or 30d"))?;
            return Ok(Self::before(now, length));
        }
        let moment = |text: Option<&str>, field: &str| {
            text.map(|text| {
                text.parse::<Timestamp>()
                    .map_err(|_| fault(field, "expected a date and time as in RFC 3339"))
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
            return Err(fault("start", "has to be before the end"));
        }
        if range.length() > MAX_LENGTH {
            return Err(fault("start", "a range holds at most 400 days"));
        }
        Ok(range)
    }

    /// How long it is.
    pub fn length(self) -> SignedDuration {
        self.end.duration_since(self.start)
    }

    /// The step in which use is summed over this range, so that a chart has at most a few hundred
    /// points.
    pub fn step(self) -> SignedDuration {
        let length = self.length();
        let fits = |step: &&SignedDuration| length.as_secs() / step.as_secs() <= MAX_STEPS;
        STEPS.iter().find(fits).copied().unwrap_or(DAY)
    }

    fn before(end: Timestamp, length: SignedDuration) -> Self {
        Self {
            start: end.saturating_sub(length).unwrap_or(Timestamp::MIN),
            end,
        }
    }
}

fn length_of(word: &str) -> Option<SignedDuration> {
    let (_, length) = TIMELINES.iter().find(|(known, _)| *known == word)?;
    Some(*length)
}

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
/// Longer than any plan keeps its logs, and a year of daily steps.
const MAX_LENGTH: SignedDuration = SignedDuration::from_hours(400 * 24);
const STEPS: [SignedDuration; 4] = [
    SignedDuration::from_mins(1),
    SignedDuration::from_mins(10),
    SignedDuration::from_hours(1),
    DAY,
];
const MAX_STEPS: i64 = 400;

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
            .map_err(|problem| problem.field.unwrap_or_default())
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
    fn a_range_of_its_own_has_an_order_and_a_length() {
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

    #[test]
    fn steps_grow_with_the_range() {
        let step = |word| read(Some(word), None, None).unwrap().step();
        assert_eq!(step("1h"), SignedDuration::from_mins(1));
        assert_eq!(step("24h"), SignedDuration::from_mins(10));
        assert_eq!(step("1w"), SignedDuration::from_hours(1));
        assert_eq!(step("30d"), DAY);
    }
}
