//! Durations in command-line syntax.

use std::time::Duration;

use jiff::SignedDuration;

/// Parses `90s`, `5m`, `1h30m`, `90d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration; use e.g. 90s, 5m, 1h30m, 90d");
    // A day is exactly 24 hours, because the lifetime of a token does not depend on a calendar.
    if let Some(days) = text.strip_suffix('d') {
        let days: u64 = days.parse().map_err(|_invalid| wrong())?;
        return days
            .checked_mul(24 * 60 * 60)
            .map(Duration::from_secs)
            .filter(|duration| !duration.is_zero())
            .ok_or_else(wrong);
    }
    let signed: SignedDuration = text.parse().map_err(|_invalid| wrong())?;
    Duration::try_from(signed)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, seconds) in [
            ("90s", 90),
            ("5m", 300),
            ("1h30m", 5400),
            ("90d", 7_776_000),
        ] {
            assert_eq!(duration(text).unwrap().as_secs(), seconds, "{text}");
        }
        assert_eq!(duration("500ms").unwrap(), Duration::from_millis(500));
        for text in ["", "5", "-5m", "0s", "d", "soon", "99999999999999999999d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
