//! Token buckets by key, with the generic cell rate algorithm (GCRA, ITU-T I.371): a bucket is
//! stored as its theoretical arrival time, at which it is full again.
//!
//! The emission interval is rounded down, so that the reported quota is never one token too low.
//! The engine's data path has a separate implementation with one atomic, which rounds up.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::generations::Generations;

/// Buckets of one size. A full bucket needs no entry, and the memory is limited.
#[derive(Debug)]
pub struct Buckets<K> {
    size: NonZeroU32,
    arrivals: Mutex<Generations<K, Instant>>,
}

/// State of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Capacity, and refill per minute.
    pub size: u32,
    /// Tokens in it.
    pub remaining: u32,
    /// Seconds until it is full, rounded up.
    pub full_after_seconds: u32,
    /// Seconds until it has a token, rounded up; 0 if it has one.
    pub wait_seconds: u32,
}

impl<K: Hash + Eq> Buckets<K> {
    /// Creates buckets with the capacity of one minute's refill.
    pub fn new(per_minute: NonZeroU32) -> Self {
        Self {
            size: per_minute,
            arrivals: Mutex::new(Generations::new(GENERATION)),
        }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// The bucket is empty.
    pub fn take(&self, key: K, now: Instant) -> Result<Quota, Quota> {
        let mut generations = self.arrivals.lock();
        let before = generations
            .get(&key)
            .map_or(now, |arrival| now.max(*arrival));
        let after = before + self.emission_interval();
        if after.duration_since(now) > WINDOW {
            return Err(self.quota(before, now));
        }
        generations.put(key, after);
        Ok(self.quota(after, now))
    }

    /// Returns a token that was taken.
    pub fn refund(&self, key: K, now: Instant) {
        let mut generations = self.arrivals.lock();
        let Some(arrival) = generations.get(&key).copied() else {
            return;
        };
        // Not before now: a bucket is never more than full.
        let before = arrival.checked_sub(self.emission_interval()).unwrap_or(now);
        generations.put(key, before.max(now));
    }

    /// State of the bucket.
    pub fn peek(&self, key: &K, now: Instant) -> Quota {
        let arrival = self.arrivals.lock().get(key).copied();
        self.quota(arrival.unwrap_or(now).max(now), now)
    }

    /// Time between two tokens.
    fn emission_interval(&self) -> Duration {
        WINDOW / self.size.get()
    }

    fn quota(&self, arrival: Instant, now: Instant) -> Quota {
        let missing = arrival.duration_since(now);
        let filled_time = WINDOW.saturating_sub(missing);
        let left = filled_time.as_nanos() / self.emission_interval().as_nanos().max(1);
        let wait = (missing + self.emission_interval()).saturating_sub(WINDOW);
        Quota {
            size: self.size.get(),
            remaining: u32::try_from(left).unwrap_or(u32::MAX).min(self.size.get()),
            full_after_seconds: seconds(missing),
            wait_seconds: seconds(wait),
        }
    }
}

/// Recently added keys, in the same limited memory.
#[derive(Debug)]
pub struct RecentKeys<K> {
    retention: Duration,
    added_at: Mutex<Generations<K, Instant>>,
}

impl<K: Hash + Eq> RecentKeys<K> {
    /// Creates a set whose keys expire after this time.
    pub fn new(retention: Duration) -> Self {
        Self {
            retention,
            added_at: Mutex::new(Generations::new(GENERATION)),
        }
    }

    /// Adds a key.
    pub fn put(&self, key: K, now: Instant) {
        self.added_at.lock().put(key, now);
    }

    /// True if the key was added recently.
    pub fn contains(&self, key: &K, now: Instant) -> bool {
        let put_at = self.added_at.lock().get(key).copied();
        put_at.is_some_and(|at| now.saturating_duration_since(at) < self.retention)
    }
}

fn seconds(duration: Duration) -> u32 {
    let rounded_up = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    u32::try_from(rounded_up).unwrap_or(u32::MAX)
}

/// A bucket has the capacity of the refill in this time.
const WINDOW: Duration = Duration::from_mins(1);
/// Two generations are more callers than one process serves in a minute, and use some megabytes.
const GENERATION: usize = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(size: u32) -> Buckets<u32> {
        Buckets::new(NonZeroU32::new(size).unwrap())
    }

    #[test]
    fn a_bucket_gives_its_tokens_and_then_the_refill() {
        let buckets = buckets(60);
        let now = Instant::now();
        for left in (0..60).rev() {
            let quota = buckets.take(1, now).unwrap();
            assert_eq!(
                (quota.remaining, quota.full_after_seconds),
                (left, 60 - left)
            );
            assert_eq!(quota.size, 60);
        }
        let empty = buckets.take(1, now).unwrap_err();
        assert_eq!((empty.remaining, empty.wait_seconds), (0, 1));
        // Another key has a full bucket.
        assert_eq!(buckets.peek(&2, now).remaining, 60);
        let later = now + Duration::from_millis(999);
        assert!(buckets.take(1, later).is_err());
        let later = now + Duration::from_secs(1);
        assert_eq!(buckets.take(1, later).unwrap().remaining, 0);
        assert!(buckets.take(1, later).is_err(), "a refusal takes no token");
        let later = now + Duration::from_hours(1);
        assert_eq!(buckets.take(1, later).unwrap().remaining, 59);
    }

    #[test]
    fn returned_tokens_can_be_taken_again() {
        let buckets = buckets(60);
        let now = Instant::now();
        for _ in 0..200 {
            buckets.take(1, now).unwrap();
            buckets.refund(1, now);
        }
        buckets.refund(1, now);
        buckets.refund(2, now);
        for left in (0..60).rev() {
            assert_eq!(buckets.take(1, now).unwrap().remaining, left);
        }
        assert!(buckets.take(1, now).is_err());
    }

    #[test]
    fn a_recent_key_expires() {
        let recent = RecentKeys::new(Duration::from_mins(1));
        let now = Instant::now();
        recent.put(1, now);
        assert!(recent.contains(&1, now) && !recent.contains(&2, now));
        assert!(!recent.contains(&1, now + Duration::from_mins(1)));
    }

    #[test]
    fn the_memory_is_limited_and_active_keys_are_kept() {
        let buckets = buckets(1_000_000);
        let now = Instant::now();
        let mut requests = 0;
        for key in 1..120_000 {
            buckets.take(key, now).unwrap();
            if key % 10_000 == 0 {
                requests += 1;
                buckets.take(0, now).unwrap();
            }
        }
        let generations = buckets.arrivals.lock();
        assert!(generations.len() <= 2 * GENERATION);
        drop(generations);
        assert_eq!(buckets.peek(&0, now).remaining, 1_000_000 - requests);
    }
}
