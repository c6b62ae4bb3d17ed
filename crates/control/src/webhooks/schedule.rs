//! When what failed is tried again, and when an endpoint is given up.

use jiff::{SignedDuration, Timestamp};

use crate::problem::Answer;
use crate::random;

/// The waits between the attempts of a delivery; after the last one it is given up, 27 hours and a
/// half after the first. The beginning is for a hiccup, the middle for a restart or a roll-back,
/// the end for whatever is noticed in the morning.
pub const RETRIES: [SignedDuration; 7] = [
    SignedDuration::from_secs(5),
    SignedDuration::from_mins(5),
    SignedDuration::from_mins(30),
    SignedDuration::from_hours(2),
    SignedDuration::from_hours(5),
    SignedDuration::from_hours(10),
    SignedDuration::from_hours(10),
];

/// An endpoint at which every attempt has failed for so long is disabled: longer than a long
/// weekend, so that somebody was there and did not care.
pub const DISABLED_AFTER: SignedDuration = SignedDuration::from_hours(5 * 24);

/// An endpoint that nobody answered at gets nothing else for this time, so that it does not keep
/// every place that others could use.
pub(super) const PAUSE: SignedDuration = SignedDuration::from_secs(30);

/// When a delivery is tried again after so many attempts; `None`: not any more. Up to a tenth
/// longer than the schedule says, so that what failed together does not come back together.
pub(super) fn next_attempt(attempts: i64, now: Timestamp) -> Answer<Option<Timestamp>> {
    let jitter = u16::from_be_bytes(random::bytes()?);
    let retry = usize::try_from(attempts - 1)
        .ok()
        .and_then(|at| RETRIES.get(at));
    Ok(retry.map(|wait| now.saturating_add(longer(*wait, jitter)).unwrap_or(now)))
}

fn longer(wait: SignedDuration, jitter: u16) -> SignedDuration {
    let extra = wait.as_millis() * i128::from(jitter) / (10 * i128::from(u16::MAX));
    wait + SignedDuration::from_millis(i64::try_from(extra).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_the_schedules_or_a_tenth_longer() {
        let wait = SignedDuration::from_mins(5);
        assert_eq!(longer(wait, 0), wait);
        assert_eq!(longer(wait, u16::MAX), SignedDuration::from_secs(330));
        let now = Timestamp::UNIX_EPOCH;
        for (attempts, wait) in (1..).zip(RETRIES) {
            let at = next_attempt(attempts, now).unwrap().unwrap();
            let (least, most) = (now + wait, now + wait * 11 / 10);
            assert!((least..=most).contains(&at), "{attempts}: {at}");
        }
        for attempts in [0, -1, 8, 9, i64::MAX] {
            assert_eq!(next_attempt(attempts, now).unwrap(), None, "{attempts}");
        }
    }
}
