//! How often somebody may try: a few times at once, then with growing waits, never locked out.
//!
//! An attempt counts when it begins, not when it fails, so that many at the same time are not one.
//! Success takes it back. The longest wait of an account is short, because whoever knows an
//! address can fail on purpose: it must not keep its owner out. Guessing is what it stops, and a
//! minute for each guess does that.
//!
//! State is in memory and per process: it is for what a restart may forgive, such as requests from one
//! address. Attempts to prove who one is are counted in the database ([`super::attempts`]).

use std::collections::HashMap;
use std::hash::Hash;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// Attempts of one kind, counted for each key.
#[derive(Debug)]
pub struct Throttle<K> {
    limits: Limits,
    tries: Mutex<HashMap<K, Tries>>,
}

/// How patient a [`Throttle`] is.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Attempts that cost no wait.
    pub free: u32,
    /// Wait after the first attempt beyond those, in seconds; it doubles with each further one.
    pub first_wait: u32,
    /// Longest wait, in seconds.
    pub longest_wait: u32,
    /// Seconds without an attempt after which all is forgotten.
    pub forgotten_after: u32,
}

impl Limits {
    /// Sign-ins to one account.
    pub const ACCOUNT: Self = Self {
        free: 5,
        first_wait: 1,
        longest_wait: 60,
        forgotten_after: 24 * 3600,
    };

    /// Codes of an authenticator app and recovery codes, by somebody who knows the password: after
    /// eight wrong ones beyond the first five, one each four hours. A code is one of a million, so
    /// guessing takes centuries.
    pub const CODES: Self = Self {
        free: 5,
        first_wait: 60,
        longest_wait: 4 * 3600,
        forgotten_after: 7 * 24 * 3600,
    };

    /// Sign-ins from one network address. Many people may share one, and none of them owns it: it
    /// gets more attempts, and longer waits.
    pub const ADDRESS: Self = Self {
        free: 30,
        first_wait: 1,
        longest_wait: 900,
        forgotten_after: 3600,
    };

    /// Mails to one account, each of which a stranger can ask for.
    pub const MAIL: Self = Self {
        free: 3,
        first_wait: 300,
        longest_wait: 3600,
        forgotten_after: 24 * 3600,
    };

    /// Mails that one person has sent to others: a team at once, and no more than a person types
    /// after it. Mails wait in one line, which is nobody's to fill.
    pub const INVITER: Self = Self {
        free: 50,
        first_wait: 30,
        longest_wait: 300,
        forgotten_after: 24 * 3600,
    };

    /// Sign-ins of one person to tunnels, which engines remember for a minute: a browser that opens
    /// all its tabs again is not kept waiting, and a script does not fill anybody's memory.
    pub const TUNNELS: Self = Self {
        free: 100,
        first_wait: 1,
        longest_wait: 10,
        forgotten_after: 300,
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

    /// Makes sure that the wait after so many attempts is over.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn require_wait(
        &self,
        count: u32,
        last: Timestamp,
        now: Timestamp,
    ) -> Result<(), TooSoon> {
        // A clock that went back: the wait begins anew, rather than to last until the clock is
        // where it was.
        let passed = now.duration_since(last.min(now));
        let left = self.wait(count).saturating_sub(passed);
        if left > SignedDuration::ZERO {
            return Err(TooSoon(whole_seconds(left)));
        }
        Ok(())
    }

    fn forgets(&self, tries: &Tries, now: Timestamp) -> bool {
        now.duration_since(tries.last) >= SignedDuration::from_secs(self.forgotten_after.into())
    }
}

#[derive(Clone, Copy, Debug)]
struct Tries {
    count: u32,
    last: Timestamp,
}

/// Too soon: the whole seconds, rounded up, after which it is worth to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSoon(pub u32);

impl<K: Hash + Eq + Clone> Throttle<K> {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            tries: Mutex::new(HashMap::new()),
        }
    }

    /// Counts an attempt of `key`, or says how long it has to wait. A refused attempt is not
    /// counted: impatience does not make the wait longer.
    ///
    /// # Errors
    /// The wait is not over.
    pub fn begin(&self, key: &K, now: Timestamp) -> Result<(), TooSoon> {
        let mut tries = self.tries.lock();
        if let Some(known) = tries.get_mut(key) {
            if self.limits.forgets(known, now) {
                *known = Tries {
                    count: 0,
                    last: now,
                };
            }
            known.last = known.last.min(now);
            self.limits.require_wait(known.count, known.last, now)?;
            known.count = known.count.saturating_add(1);
            known.last = now;
            return Ok(());
        }
        if tries.len() >= MOST_KEYS {
            make_room(&mut tries, &self.limits, now);
        }
        tries.insert(
            key.clone(),
            Tries {
                count: 1,
                last: now,
            },
        );
        Ok(())
    }

    /// The attempt was good: all attempts of `key` are forgotten.
    pub fn succeeded(&self, key: &K) {
        self.tries.lock().remove(key);
    }

    /// The attempt was good, but the key is shared: one attempt is taken back.
    pub fn take_back(&self, key: &K) {
        if let Some(known) = self.tries.lock().get_mut(key) {
            known.count = known.count.saturating_sub(1);
        }
    }
}

/// Drops what is forgotten, and where that is too little the older half. A flood of keys can thus
/// push out honest counts; it cannot take memory, nor make each attempt walk the table.
fn make_room<K: Hash + Eq>(tries: &mut HashMap<K, Tries>, limits: &Limits, now: Timestamp) {
    tries.retain(|_, known| !limits.forgets(known, now));
    if tries.len() < MOST_KEYS / 2 {
        return;
    }
    let mut times: Vec<Timestamp> = tries.values().map(|known| known.last).collect();
    let middle = times.len() / 2;
    let (_, median, _) = times.select_nth_unstable(middle);
    let median = *median;
    tries.retain(|_, known| known.last > median);
}

fn whole_seconds(left: SignedDuration) -> u32 {
    let part = i64::from(left.subsec_nanos() > 0);
    u32::try_from(left.as_secs().saturating_add(part)).unwrap_or(u32::MAX)
}

/// Keys that are remembered: some megabytes.
const MOST_KEYS: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn used_up(limits: Limits) -> Throttle<&'static str> {
        let throttle = Throttle::new(limits);
        for _ in 0..limits.free {
            assert_eq!(throttle.begin(&"ada", at(0)), Ok(()));
        }
        throttle
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let throttle = used_up(Limits::ACCOUNT);
        let mut now = 0;
        for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(throttle.begin(&"ada", at(now)), Ok(()));
            assert_eq!(throttle.begin(&"ada", at(now)), Err(TooSoon(wait)));
            let almost = at(now + i64::from(wait)) - SignedDuration::from_millis(1);
            assert_eq!(throttle.begin(&"ada", almost), Err(TooSoon(1)));
            now += i64::from(wait);
        }
    }

    #[test]
    fn an_account_is_never_closed_for_longer_than_a_minute() {
        let throttle = used_up(Limits::ACCOUNT);
        for minute in 0..1000 {
            assert_eq!(throttle.begin(&"ada", at(minute * 60)), Ok(()), "{minute}");
        }
    }

    #[test]
    fn waits_for_codes_grow_to_hours() {
        let throttle = used_up(Limits::CODES);
        let mut now = 0;
        for wait in [60, 120, 240, 480, 960, 1920, 3840, 7680, 14400, 14400] {
            assert_eq!(throttle.begin(&"ada", at(now)), Ok(()));
            assert_eq!(throttle.begin(&"ada", at(now)), Err(TooSoon(wait)));
            now += i64::from(wait);
        }
    }

    #[test]
    fn others_are_not_held_back() {
        let throttle = used_up(Limits::ACCOUNT);
        throttle.begin(&"ada", at(0)).unwrap();
        assert!(throttle.begin(&"ada", at(0)).is_err());
        assert_eq!(throttle.begin(&"grace", at(0)), Ok(()));
    }

    #[test]
    fn success_forgives_and_so_does_time() {
        let throttle = used_up(Limits::ACCOUNT);
        throttle.begin(&"ada", at(0)).unwrap();
        throttle.succeeded(&"ada");
        for _ in 0..=Limits::ACCOUNT.free {
            assert_eq!(throttle.begin(&"ada", at(0)), Ok(()));
        }
        assert!(throttle.begin(&"ada", at(0)).is_err());
        let later = i64::from(Limits::ACCOUNT.forgotten_after);
        for _ in 0..=Limits::ACCOUNT.free {
            assert_eq!(throttle.begin(&"ada", at(later)), Ok(()));
        }
    }

    #[test]
    fn one_good_sign_in_does_not_clear_a_shared_address() {
        let throttle = used_up(Limits::ADDRESS);
        throttle.begin(&"ada", at(0)).unwrap();
        throttle.take_back(&"ada");
        assert_eq!(throttle.begin(&"ada", at(0)), Ok(()));
        assert!(throttle.begin(&"ada", at(0)).is_err());
    }

    #[test]
    fn a_clock_that_goes_back_does_not_lengthen_the_wait() {
        let throttle = used_up(Limits::ACCOUNT);
        throttle.begin(&"ada", at(0)).unwrap();
        assert_eq!(throttle.begin(&"ada", at(-7200)), Err(TooSoon(1)));
        assert_eq!(throttle.begin(&"ada", at(-7199)), Ok(()));
    }

    #[test]
    fn memory_has_a_bound_and_the_newest_stay() {
        let throttle = Throttle::new(Limits::ACCOUNT);
        for key in 0..=MOST_KEYS {
            let moment = at(0) + SignedDuration::from_millis(i64::try_from(key).unwrap());
            throttle.begin(&key, moment).unwrap();
        }
        let tries = throttle.tries.lock();
        assert!(tries.len() <= MOST_KEYS / 2 + 1, "{}", tries.len());
        assert!(tries.contains_key(&MOST_KEYS) && tries.contains_key(&(MOST_KEYS - 1)));
    }
}
