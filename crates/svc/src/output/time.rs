//! Times in tables for people: short, relative to now, and in local time.

use jiff::{Timestamp, tz::TimeZone};

/// A time of an API (RFC 3339) as text for people. Other text stays as it is.
pub(crate) fn moment(text: &str, now: Timestamp, zone: &TimeZone) -> String {
    // Only complete times: `2026` or a name is not one.
    let is_time = text.len() >= MIN_LENGTH && text.as_bytes().get(10) == Some(&b'T');
    let Some(at) = text.parse::<Timestamp>().ok().filter(|_| is_time) else {
        return text.to_owned();
    };
    let seconds = at.as_second() - now.as_second();
    let (size, is_past) = (seconds.unsigned_abs(), seconds < 0);
    let days = size / DAY;
    if size == 0 {
        return "now".to_owned();
    }
    if is_past && days >= DATE_AFTER_DAYS {
        return at.to_zoned(zone.clone()).strftime("%Y-%m-%d").to_string();
    }
    let (count, unit) = match size {
        0..MINUTE => (size, "s"),
        MINUTE..HOUR => (size / MINUTE, "min"),
        HOUR..TWO_DAYS => (size / HOUR, "h"),
        _ => (days, "days"),
    };
    if is_past {
        format!("{count} {unit} ago")
    } else {
        format!("in {count} {unit}")
    }
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const TWO_DAYS: u64 = 2 * DAY;

/// An older time is a date: the exact number of days is less useful.
const DATE_AFTER_DAYS: u64 = 14;

/// The length of `2026-01-01T00:00:00Z`.
const MIN_LENGTH: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_to_now() {
        let now: Timestamp = "2026-08-03T12:00:00Z".parse().unwrap();
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        for (text, shown) in [
            ("2026-08-03T12:00:00Z", "now"),
            ("2026-08-03T12:00:30Z", "in 30 s"),
            ("2026-08-03T11:59:59.5Z", "1 s ago"),
            ("2026-08-03T11:20:00Z", "40 min ago"),
            ("2026-08-03T10:00:00+02:00", "4 h ago"),
            ("2026-08-05T11:00:00Z", "in 47 h"),
            ("2026-10-31T13:00:00Z", "in 89 days"),
            ("2026-07-25T12:00:00Z", "9 days ago"),
            ("2026-07-01T22:30:00Z", "2026-07-02"),
            ("2026-08-03", "2026-08-03"),
            ("never", "never"),
            ("", ""),
        ] {
            assert_eq!(moment(text, now, &zone), shown, "{text}");
        }
    }
}
