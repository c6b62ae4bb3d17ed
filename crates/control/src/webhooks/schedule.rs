//! Retry schedule of deliveries, and the rule for disabling endpoints.

use jiff::{SignedDuration, Timestamp};

use crate::http_api::problem::HandlerResult;
use crate::runtime::random;

/// Waits between the attempts of a delivery. The delivery fails after the last one, 27 hours and a
/// half after the first. The first waits cover a brief failure, the middle ones a restart or a
/// roll-back, and the last ones a problem that is noticed the next morning.
pub const RETRIES: [SignedDuration; 7] = [
    SignedDuration::from_secs(5),
    SignedDuration::from_mins(5),
    SignedDuration::from_mins(30),
    SignedDuration::from_hours(2),
    SignedDuration::from_hours(5),
    SignedDuration::from_hours(10),
    SignedDuration::from_hours(10),
];

/// An endpoint is disabled after every attempt has failed for this long. It is longer than a long
/// weekend, so that an administrator could have reacted.
pub const DISABLED_AFTER: SignedDuration = SignedDuration::from_hours(5 * 24);

/// After an attempt without a response, the endpoint gets no other delivery for this time, so that
/// it does not occupy slots that other endpoints need.
pub(super) const PAUSE: SignedDuration = SignedDuration::from_secs(30);

/// Time of the next attempt after so many attempts; `None` after the last one. It is up to a tenth
/// later than scheduled, so that deliveries that failed together are not all retried together.
pub(super) fn next_attempt(attempts: i64, now: Timestamp) -> HandlerResult<Option<Timestamp>> {
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
    fn each_wait_is_at_most_a_tenth_longer_than_the_schedule() {
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
