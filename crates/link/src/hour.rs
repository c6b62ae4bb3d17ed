//! Hours of usage records.

use std::time::Duration;

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

/// Interval of usage reports. Access records must arrive within 10 seconds, and so must these.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Time until the next report of usage. It never crosses the end of an hour, so that counts belong
/// to one hour.
pub fn report_interval(now: Timestamp) -> Duration {
    let left = 3600 - now.as_second().rem_euclid(3600);
    REPORT_INTERVAL.min(Duration::from_secs(left.unsigned_abs()))
}

/// The start of the hour to which usage at this time belongs.
pub fn hour_of(now: Timestamp) -> Timestamp {
    let whole = TimestampRound::new()
        .smallest(Unit::Hour)
        .mode(RoundMode::Floor);
    now.round(whole).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn usage_counts_belong_to_one_hour() {
        assert_eq!(
            hour_of(at("2026-11-20T17:59:58.9Z")),
            at("2026-11-20T17:00:00Z")
        );
        assert_eq!(report_interval(at("2026-11-20T17:30:00Z")), REPORT_INTERVAL);
        assert_eq!(
            report_interval(at("2026-11-20T17:59:58.9Z")),
            Duration::from_secs(2)
        );
    }
}
