//! Times of orders, without a clock: every time is an argument, in seconds since 1970.

use std::time::Duration;

/// Validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub not_before: i64,
    /// Last second.
    pub not_after: i64,
}

/// The period in which the authority asks for a renewal (RFC 9773 section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalWindow {
    /// First second.
    pub start: i64,
    /// Last second.
    pub end: i64,
}

/// Time at which a certificate is renewed. `random` is any 64 uniform bits. It stays the same for
/// one certificate, so that repeated calls do not move the time.
///
/// A random time in the authority's window, or, without a window, a time shortly after two thirds
/// of the lifetime. The last tenth of the lifetime is never waited for, because a window in it
/// leaves no time for failures.
pub(crate) fn renewal_time(validity: Validity, window: Option<RenewalWindow>, random: u64) -> i64 {
    let Validity {
        not_before,
        not_after,
    } = validity;
    let lifetime = not_after.saturating_sub(not_before).max(0);
    let latest = not_after.saturating_sub(lifetime / 10);
    let usual = not_before.saturating_add(lifetime / 3 * 2);
    let time = match window {
        // An empty window is a mistake of the authority (RFC 9773 section 4.2).
        Some(RenewalWindow { start, end }) if start <= end => {
            start.saturating_add(scale(random, end.saturating_sub(start)))
        }
        _ => usual.saturating_add(scale(random, lifetime / JITTER_SHARE)),
    };
    time.min(latest)
}

/// Time before which a certificate that was ordered at `ordered_at` is not renewed, even if its
/// authority asks for it or its validity is nearly over: without it, a mistake of the authority
/// would cause one order after the other.
pub(crate) fn earliest_renewal(ordered_at: i64, validity: Validity) -> i64 {
    let lifetime = validity.not_after.saturating_sub(validity.not_before);
    ordered_at.saturating_add((lifetime / 3).clamp(MIN_INTERVAL, MAX_INTERVAL))
}

/// Returns true if a time has come, or is later than `now` by more than any delay that leads to it:
/// then the clock was set back, and the time means nothing.
pub(crate) fn has_come(time: i64, longest_delay: i64, now: i64) -> bool {
    time <= now || time.saturating_sub(now) > longest_delay
}

/// Delay before the next attempt, after `failures` consecutive ones (at least one). The longest
/// delay doubles with each failure, up to [`MAX_DELAY`]; the actual one is between its half and
/// itself. `retry_after` is the delay that the authority requested; it is respected up to
/// [`MAX_REQUESTED_DELAY`].
pub(crate) fn retry_delay(
    first: Duration,
    failures: u32,
    retry_after: Option<Duration>,
    random: u64,
) -> Duration {
    let doubled = 1_u32
        .checked_shl(failures.saturating_sub(1))
        .unwrap_or(u32::MAX);
    let longest = first.saturating_mul(doubled).min(MAX_DELAY);
    let half = longest / 2;
    let millis = i64::try_from(half.as_millis()).unwrap_or(i64::MAX);
    let jitter = u64::try_from(scale(random, millis)).unwrap_or_default();
    let delay = half.saturating_add(Duration::from_millis(jitter));
    let requested = retry_after.unwrap_or_default().min(MAX_REQUESTED_DELAY);
    delay.max(requested)
}

/// `random` scaled to 0 to `range`, without bias.
fn scale(random: u64, range: i64) -> i64 {
    let range = u128::try_from(range).unwrap_or_default();
    let scaled = (u128::from(random) * (range + 1)) >> 64;
    i64::try_from(scaled).unwrap_or_default()
}

/// Bounds of the time between two successful orders, in seconds.
const MIN_INTERVAL: i64 = 60;
pub(crate) const MAX_INTERVAL: i64 = 3600;

/// Without a window, renewals are spread over a twentieth of the lifetime: 4.5 days of 90, and 7
/// hours of 6 days.
const JITTER_SHARE: i64 = 20;

/// A 6-day certificate is renewed two days before it expires, so there are at least eight attempts.
const MAX_DELAY: Duration = Duration::from_hours(6);

/// Rate limits of public authorities are per hour, or at most per week. A process that waits for a
/// day asks again seven times at most.
const MAX_REQUESTED_DELAY: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 86_400;

    fn validity(days: i64) -> Validity {
        Validity {
            not_before: 1_800_000_000,
            not_after: 1_800_000_000 + days * DAY,
        }
    }

    #[test]
    fn without_a_window_a_renewal_starts_at_two_thirds() {
        for days in [6, 47, 90] {
            let start = validity(days).not_before;
            let earliest = renewal_time(validity(days), None, 0) - start;
            let latest = renewal_time(validity(days), None, u64::MAX) - start;
            assert_eq!(earliest, days * DAY / 3 * 2, "{days}");
            assert_eq!(latest, earliest + days * DAY / 20, "{days}");
        }
    }

    #[test]
    fn a_window_of_the_authority_precedes_the_lifetime() {
        let validity = validity(90);
        let window = |start, end| {
            Some(RenewalWindow {
                start: validity.not_before + start * DAY,
                end: validity.not_before + end * DAY,
            })
        };
        let day =
            |window, random| (renewal_time(validity, window, random) - validity.not_before) / DAY;
        assert_eq!(day(window(30, 32), 0), 30);
        assert_eq!(day(window(30, 32), u64::MAX), 32);
        assert_eq!(
            day(window(-5, -4), 0),
            -5,
            "a revoked certificate is renewed now"
        );
        assert_eq!(
            day(window(89, 90), 0),
            81,
            "a late window leaves no time for failures"
        );
        assert_eq!(day(window(40, 30), 0), 60, "an empty window is ignored");
    }

    #[test]
    fn orders_have_a_least_distance() {
        assert_eq!(earliest_renewal(5, validity(90)), 5 + 3600);
        let short = |seconds| Validity {
            not_before: 0,
            not_after: seconds,
        };
        assert_eq!(earliest_renewal(5, short(3000)), 5 + 1000);
        assert_eq!(earliest_renewal(5, short(0)), 5 + 60);
        assert_eq!(earliest_renewal(i64::MAX, short(0)), i64::MAX);
    }

    #[test]
    fn a_time_from_before_the_clock_was_set_back_has_come() {
        for (time, expected) in [(99, true), (100, true), (101, false), (110, false)] {
            assert_eq!(has_come(time, 10, 100), expected, "{time}");
        }
        assert!(has_come(111, 10, 100));
        assert!(has_come(i64::MAX, 10, i64::MIN));
    }

    #[test]
    fn delays_double_up_to_a_bound() {
        let first = Duration::from_secs(30);
        let delay = |failures| retry_delay(first, failures, None, u64::MAX).as_secs();
        assert_eq!([1, 2, 3, 4].map(delay), [30, 60, 120, 240]);
        assert_eq!([20, 40, u32::MAX].map(delay), [6 * 3600; 3]);
        assert_eq!(retry_delay(first, 1, None, 0).as_secs(), 15);
    }

    #[test]
    fn the_requested_delay_is_respected_up_to_a_day() {
        let first = Duration::from_secs(30);
        let delay = |seconds| {
            let requested = Some(Duration::from_secs(seconds));
            retry_delay(first, 1, requested, u64::MAX).as_secs()
        };
        assert_eq!(delay(1), 30);
        assert_eq!(delay(3600), 3600);
        assert_eq!(delay(u64::MAX), 24 * 3600);
    }

    proptest! {
        #[test]
        fn a_renewal_is_never_after_the_last_tenth(
            not_before in 0..4_000_000_000_i64,
            lifetime in 1..400 * DAY,
            window in proptest::option::of((any::<i64>(), any::<i64>())),
            random: u64,
        ) {
            let validity = Validity { not_before, not_after: not_before + lifetime };
            let window = window.map(|(start, end)| RenewalWindow { start, end });
            let time = renewal_time(validity, window, random);
            prop_assert!(time <= validity.not_after - lifetime / 10);
        }

        #[test]
        fn a_delay_is_never_zero_and_bounded(failures in 1..u32::MAX, after: Option<u32>, random: u64) {
            let after = after.map(|seconds| Duration::from_secs(seconds.into()));
            let delay = retry_delay(Duration::from_secs(30), failures, after, random);
            prop_assert!(delay >= Duration::from_secs(15));
            prop_assert!(delay <= MAX_REQUESTED_DELAY);
        }
    }
}
