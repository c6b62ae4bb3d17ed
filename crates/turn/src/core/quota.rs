//! Limits of allocations and reserved ports: in total, and per user, project and source; and their
//! rates. All workers share the counts.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use daemon::connections::source_network;
use parking_lot::Mutex;

use super::Millis;
use super::rate::{Bandwidth, Bucket, Rates};

/// Maximum numbers of allocations and reserved ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// In total.
    pub whole: usize,
    /// In one project.
    pub per_project: usize,
    /// Of one holder of credentials in one project: a user, a token or an application.
    pub per_user: usize,
    /// From one source: an IPv4 address, or an IPv6 network of 64 bits.
    pub per_source: usize,
}

/// The current counts. Clones share them.
#[derive(Clone, Debug)]
pub struct Quotas {
    limits: Quota,
    bandwidth: Bandwidth,
    usage: Arc<Mutex<QuotaUsage>>,
}

#[derive(Debug, Default)]
struct QuotaUsage {
    whole: usize,
    projects: HashMap<Arc<str>, SharedCount>,
    users: HashMap<Arc<str>, SharedCount>,
    sources: HashMap<IpAddr, SharedCount>,
}

/// Allocations that are counted together, and their shared rate.
#[derive(Debug, Default)]
struct SharedCount {
    count: usize,
    bucket: Option<Arc<Bucket>>,
}

/// Permit for one allocation or one reserved port. Dropping it releases the permit.
#[derive(Debug)]
pub struct Permit {
    project: Arc<str>,
    user: Arc<str>,
    source: IpAddr,
    rates: Rates,
    usage: Arc<Mutex<QuotaUsage>>,
}

impl Quotas {
    /// Creates empty counts.
    pub fn new(limits: Quota, bandwidth: Bandwidth) -> Self {
        Self {
            limits,
            bandwidth,
            usage: Arc::default(),
        }
    }

    /// Takes a permit, if no limit is reached. `user` identifies the holder with the project.
    pub fn take(
        &self,
        now: Millis,
        project: &Arc<str>,
        user: &Arc<str>,
        source: IpAddr,
    ) -> Option<Permit> {
        let source = source_network(source);
        let mut held = self.usage.lock();
        let of = |place: Option<&SharedCount>| place.map_or(0, |place| place.count);
        let is_free = held.whole < self.limits.whole
            && of(held.projects.get(project)) < self.limits.per_project
            && of(held.users.get(user)) < self.limits.per_user
            && of(held.sources.get(&source)) < self.limits.per_source;
        if !is_free {
            return None;
        }
        held.whole += 1;
        let Bandwidth {
            per_allocation,
            per_user,
            per_project,
        } = self.bandwidth;
        let entry = held.projects.entry(Arc::clone(project)).or_default();
        let of_project = entry.add_permit(per_project, now);
        let of_user = held.users.entry(Arc::clone(user)).or_default();
        let of_user = of_user.add_permit(per_user, now);
        let of_source = held.sources.entry(source).or_default();
        of_source.add_permit(None, now);
        drop(held);
        let own = per_allocation.map(|rate| Arc::new(Bucket::new(rate, now)));
        Some(Permit {
            project: Arc::clone(project),
            user: Arc::clone(user),
            source,
            rates: Rates::new([own, of_user, of_project]),
            usage: Arc::clone(&self.usage),
        })
    }

    /// Number of permits in use.
    pub fn taken(&self) -> usize {
        self.usage.lock().whole
    }
}

impl SharedCount {
    /// Adds one permit; the first one creates the shared rate.
    fn add_permit(&mut self, rate: Option<u32>, now: Millis) -> Option<Arc<Bucket>> {
        self.count += 1;
        if self.bucket.is_none() {
            self.bucket = rate.map(|rate| Arc::new(Bucket::new(rate, now)));
        }
        self.bucket.clone()
    }
}

impl Permit {
    /// The rates of the allocation.
    pub fn rates(&self) -> &Rates {
        &self.rates
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self.usage.lock();
        held.whole = held.whole.saturating_sub(1);
        release(&mut held.projects, &self.project);
        release(&mut held.users, &self.user);
        release(&mut held.sources, &self.source);
    }
}

fn release<K: Hash + Eq>(places: &mut HashMap<K, SharedCount>, key: &K) {
    if let Some(place) = places.get_mut(key) {
        place.count -= 1;
        if place.count == 0 {
            places.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_applies_and_released_permits_are_available() {
        let limits = Quota {
            whole: 4,
            per_project: 3,
            per_user: 2,
            per_source: 2,
        };
        let quotas = Quotas::new(limits, Bandwidth::default());
        let take = |project: &str, user: &str, source: &str| {
            let source = source.parse().unwrap();
            quotas.take(Millis(0), &project.into(), &user.into(), source)
        };
        let first = take("p", "u", "192.0.2.1").unwrap();
        let _second = take("p", "u", "192.0.2.2").unwrap();
        assert!(take("p", "u", "192.0.2.3").is_none(), "user");
        let _third = take("p", "v", "192.0.2.1").unwrap();
        assert!(take("q", "w", "192.0.2.1").is_none(), "source");
        assert!(take("q", "w", "::ffff:192.0.2.1").is_none(), "source");
        assert!(take("p", "w", "192.0.2.9").is_none(), "project");
        let fourth = take("q", "w", "2a00::1").unwrap();
        assert!(take("q", "x", "2a00:1::1").is_none(), "whole");
        assert_eq!(quotas.taken(), 4);
        drop(first);
        let _fifth = take("q", "w", "2a00::ffff").unwrap();
        drop(fourth);
        assert!(take("p", "u", "192.0.2.1").is_some());
        assert_eq!(quotas.taken(), 3);
    }

    #[test]
    fn released_permits_leave_no_entries() {
        let limits = Quota {
            whole: 1,
            per_project: 1,
            per_user: 1,
            per_source: 1,
        };
        let quotas = Quotas::new(limits, Bandwidth::default());
        let source = "192.0.2.1".parse().unwrap();
        drop(quotas.take(Millis(0), &"p".into(), &"u".into(), source));
        let held = quotas.usage.lock();
        assert!(held.projects.is_empty() && held.users.is_empty() && held.sources.is_empty());
    }

    #[test]
    fn allocations_of_one_user_and_of_one_project_share_their_rates() {
        let limits = Quota {
            whole: 9,
            per_project: 9,
            per_user: 9,
            per_source: 9,
        };
        let bandwidth = Bandwidth {
            per_allocation: None,
            per_user: Some(1000),
            per_project: Some(1500),
        };
        let quotas = Quotas::new(limits, bandwidth);
        let take = |project: &str, user: &str| {
            let source = "192.0.2.1".parse().unwrap();
            let taken = quotas.take(Millis(0), &project.into(), &user.into(), source);
            taken.unwrap()
        };
        let [first, second, third] = [take("p", "u"), take("p", "u"), take("p", "v")];
        let other = take("q", "w");
        let at = Millis(10_000);
        first.rates().charge(at, 1001);
        assert!(!second.rates().admit(at, 1), "of one user");
        assert!(third.rates().admit(at, 500), "500 are left of the project");
        assert!(!third.rates().admit(at, 1));
        assert!(other.rates().admit(at, 999));
    }
}
