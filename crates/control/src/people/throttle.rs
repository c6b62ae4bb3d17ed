//! Throttling of attempts: a few need no wait, and later ones need growing waits. There is no
//! lockout.
//!
//! An attempt counts when it starts, not when it fails, so that parallel attempts all count.
//! Success resets the count. The longest wait of an account is short, because anyone who knows an
//! address can fail on purpose and must not lock its owner out. A minute for each attempt is enough
//! to stop guessing.
//!
//! The state is in memory and per process. Use it only where a restart may reset the count, such as
//! requests from one address. Authentication attempts are counted in the database
//! ([`super::attempts`]).

use std::collections::HashMap;
use std::hash::Hash;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// Attempts of one kind, counted for each key.
#[derive(Debug)]
pub struct Throttle<K> {
    limits: Limits,
    attempts: Mutex<HashMap<K, AttemptCount>>,
}

/// Parameters of a [`Throttle`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Attempts that need no wait.
    pub free: u32,
    /// Wait after the first attempt beyond those, in seconds. It doubles with each further attempt.
    pub first_wait: u32,
    /// Longest wait, in seconds.
    pub longest_wait: u32,
    /// Seconds without an attempt after which the count is reset.
    pub reset_after: u32,
}

impl Limits {
    /// Sign-ins to one account.
    pub const ACCOUNT: Self = Self {
        free: 5,
        first_wait: 1,
        longest_wait: 60,
        reset_after: 24 * 3600,
    };

    /// Codes of an authenticator app and recovery codes, from a client that has the password. After
    /// eight wrong codes beyond the first five, one is allowed every four hours. A code is one of a
    /// million, so guessing takes centuries.
    pub const CODES: Self = Self {
        free: 5,
        first_wait: 60,
        longest_wait: 4 * 3600,
        reset_after: 7 * 24 * 3600,
    };

    /// Sign-ins from one network address. Many users may share an address, and none of them
    /// controls it. It gets more attempts and longer waits.
    pub const ADDRESS: Self = Self {
        free: 30,
        first_wait: 1,
        longest_wait: 900,
        reset_after: 3600,
    };

    /// Mails to one account. A stranger can request each of them.
    pub const MAIL: Self = Self {
        free: 3,
        first_wait: 300,
        longest_wait: 3600,
        reset_after: 24 * 3600,
    };

    /// Mails that one user has sent to other people. A whole team can be invited without a wait;
    /// after that the rate is limited to manual typing. All mails share one queue, which one user
    /// must not fill.
    pub const INVITER: Self = Self {
        free: 50,
        first_wait: 30,
        longest_wait: 300,
        reset_after: 24 * 3600,
    };

    /// Sign-ins of one user to tunnels. Engines cache them for a minute. A browser that reopens all
    /// its tabs is not delayed, and a script cannot fill the memory.
    pub const TUNNELS: Self = Self {
        free: 100,
        first_wait: 1,
        longest_wait: 10,
        reset_after: 300,
    };

    /// Custom domains that one user adds. A domain that is removed again has caused an order of a
    /// certificate, and the number of orders in an hour is limited for all projects of an engine
    /// together.
    pub const DOMAINS: Self = Self {
        free: 100,
        first_wait: 30,
        longest_wait: 300,
        reset_after: 24 * 3600,
    };

    /// The wait after `count` attempts.
    fn wait(&self, count: u32) -> SignedDuration {
        let seconds = match count.checked_sub(self.free) {
            None | Some(0) => 0,
            Some(beyond) => 1_u32
                .checked_shl(beyond - 1)
                .and_then(|factor| factor.checked_mul(self.first_wait))
                .unwrap_or(u32::MAX)
                .min(self.longest_wait),
        };
        SignedDuration::from_secs(i64::from(seconds))
    }

    /// Checks that the wait after so many attempts is over.
    ///
    /// # Errors
    /// The wait is not over.
    pub(super) fn require_wait_over(
        &self,
        count: u32,
        last: Timestamp,
        now: Timestamp,
    ) -> Result<(), TooManyAttemptsError> {
        // If the clock was set back, the wait restarts. Otherwise it would last until the clock
        // reaches its old value again.
        let passed = now.duration_since(last.min(now));
        let remaining = self.wait(count).saturating_sub(passed);
        if remaining > SignedDuration::ZERO {
            return Err(TooManyAttemptsError(whole_seconds(remaining)));
        }
        Ok(())
    }

    fn has_expired(&self, tries: &AttemptCount, now: Timestamp) -> bool {
        now.duration_since(tries.last_attempt) >= SignedDuration::from_secs(self.reset_after.into())
    }
}

#[derive(Clone, Copy, Debug)]
struct AttemptCount {
    count: u32,
    last_attempt: Timestamp,
}

/// The wait is not over. The value is the number of whole seconds, rounded up, until the next
/// attempt can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyAttemptsError(pub u32);

impl<K: Hash + Eq + Clone> Throttle<K> {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            attempts: Mutex::new(HashMap::new()),
        }
    }

    /// Counts an attempt of `key`, or returns the time to wait. A refused attempt is not counted,
    /// so retrying early does not make the wait longer.
    ///
    /// # Errors
    /// The wait is not over.
    pub fn record_attempt(&self, key: &K, now: Timestamp) -> Result<(), TooManyAttemptsError> {
        let mut tries = self.attempts.lock();
        if let Some(known) = tries.get_mut(key) {
            if self.limits.has_expired(known, now) {
                *known = AttemptCount {
                    count: 0,
                    last_attempt: now,
                };
            }
            known.last_attempt = known.last_attempt.min(now);
            self.limits
                .require_wait_over(known.count, known.last_attempt, now)?;
            known.count = known.count.saturating_add(1);
            known.last_attempt = now;
            return Ok(());
        }
        if tries.len() >= MAX_KEYS {
            evict(&mut tries, &self.limits, now);
        }
        tries.insert(
            key.clone(),
            AttemptCount {
                count: 1,
                last_attempt: now,
            },
        );
        Ok(())
    }

    /// Resets the count of `key` after a successful attempt.
    pub fn reset(&self, key: &K) {
        self.attempts.lock().remove(key);
    }

    /// Takes back one attempt after a success, for a `key` that many users share.
    pub fn undo_attempt(&self, key: &K) {
        if let Some(known) = self.attempts.lock().get_mut(key) {
            known.count = known.count.saturating_sub(1);
        }
    }
}

/// Drops expired counts and, if that is not enough, the older half. A flood of keys can thus push
/// out honest counts. It cannot exhaust the memory or make each attempt scan the table.
fn evict<K: Hash + Eq>(tries: &mut HashMap<K, AttemptCount>, limits: &Limits, now: Timestamp) {
    tries.retain(|_, known| !limits.has_expired(known, now));
    if tries.len() < MAX_KEYS / 2 {
        return;
    }
    let mut times: Vec<Timestamp> = tries.values().map(|known| known.last_attempt).collect();
    let middle = times.len() / 2;
    let (_, median, _) = times.select_nth_unstable(middle);
    let median = *median;
    tries.retain(|_, known| known.last_attempt > median);
}

fn whole_seconds(remaining: SignedDuration) -> u32 {
    let part = i64::from(remaining.subsec_nanos() > 0);
    u32::try_from(remaining.as_secs().saturating_add(part)).unwrap_or(u32::MAX)
}

/// Maximum number of stored keys, which take some megabytes.
const MAX_KEYS: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn used_up(limits: Limits) -> Throttle<&'static str> {
        let throttle = Throttle::new(limits);
        for _ in 0..limits.free {
            assert_eq!(throttle.record_attempt(&"ada", at(0)), Ok(()));
        }
        throttle
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let throttle = used_up(Limits::ACCOUNT);
        let mut now = 0;
        for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(throttle.record_attempt(&"ada", at(now)), Ok(()));
            assert_eq!(
                throttle.record_attempt(&"ada", at(now)),
                Err(TooManyAttemptsError(wait))
            );
            let almost = at(now + i64::from(wait)) - SignedDuration::from_millis(1);
            assert_eq!(
                throttle.record_attempt(&"ada", almost),
                Err(TooManyAttemptsError(1))
            );
            now += i64::from(wait);
        }
    }

    #[test]
    fn an_account_never_waits_longer_than_a_minute() {
        let throttle = used_up(Limits::ACCOUNT);
        for minute in 0..1000 {
            assert_eq!(
                throttle.record_attempt(&"ada", at(minute * 60)),
                Ok(()),
                "{minute}"
            );
        }
    }

    #[test]
    fn waits_for_codes_grow_to_hours() {
        let throttle = used_up(Limits::CODES);
        let mut now = 0;
        for wait in [60, 120, 240, 480, 960, 1920, 3840, 7680, 14400, 14400] {
            assert_eq!(throttle.record_attempt(&"ada", at(now)), Ok(()));
            assert_eq!(
                throttle.record_attempt(&"ada", at(now)),
                Err(TooManyAttemptsError(wait))
            );
            now += i64::from(wait);
        }
    }

    #[test]
    fn other_keys_are_not_throttled() {
        let throttle = used_up(Limits::ACCOUNT);
        throttle.record_attempt(&"ada", at(0)).unwrap();
        assert!(throttle.record_attempt(&"ada", at(0)).is_err());
        assert_eq!(throttle.record_attempt(&"grace", at(0)), Ok(()));
    }

    #[test]
    fn success_and_time_reset_the_count() {
        let throttle = used_up(Limits::ACCOUNT);
        throttle.record_attempt(&"ada", at(0)).unwrap();
        throttle.reset(&"ada");
        for _ in 0..=Limits::ACCOUNT.free {
            assert_eq!(throttle.record_attempt(&"ada", at(0)), Ok(()));
        }
        assert!(throttle.record_attempt(&"ada", at(0)).is_err());
        let later = i64::from(Limits::ACCOUNT.reset_after);
        for _ in 0..=Limits::ACCOUNT.free {
            assert_eq!(throttle.record_attempt(&"ada", at(later)), Ok(()));
        }
    }

    #[test]
    fn one_success_does_not_reset_a_shared_address() {
        let throttle = used_up(Limits::ADDRESS);
        throttle.record_attempt(&"ada", at(0)).unwrap();
        throttle.undo_attempt(&"ada");
        assert_eq!(throttle.record_attempt(&"ada", at(0)), Ok(()));
        assert!(throttle.record_attempt(&"ada", at(0)).is_err());
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_lengthen_the_wait() {
        let throttle = used_up(Limits::ACCOUNT);
        throttle.record_attempt(&"ada", at(0)).unwrap();
        assert_eq!(
            throttle.record_attempt(&"ada", at(-7200)),
            Err(TooManyAttemptsError(1))
        );
        assert_eq!(throttle.record_attempt(&"ada", at(-7199)), Ok(()));
    }

    #[test]
    fn the_number_of_keys_is_limited_and_the_newest_stay() {
        let throttle = Throttle::new(Limits::ACCOUNT);
        for key in 0..=MAX_KEYS {
            let moment = at(0) + SignedDuration::from_millis(i64::try_from(key).unwrap());
            throttle.record_attempt(&key, moment).unwrap();
        }
        let tries = throttle.attempts.lock();
        assert!(tries.len() <= MAX_KEYS / 2 + 1, "{}", tries.len());
        assert!(tries.contains_key(&MAX_KEYS) && tries.contains_key(&(MAX_KEYS - 1)));
    }
}
