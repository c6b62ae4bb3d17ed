//! How many allocations there may be: of everybody, and of each user, project and source. One
//! count for all workers.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// How many allocations there may be at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Of all clients.
    pub whole: usize,
    /// Of one project.
    pub per_project: usize,
    /// Of one holder of credentials in one project: a user, a token, an application.
    pub per_user: usize,
    /// From one source: an IPv4 address, or an IPv6 network of 64 bits.
    pub per_source: usize,
}

/// What there is. Cheap to clone; clones are one.
#[derive(Clone, Debug)]
pub struct Quotas {
    limits: Quota,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    whole: usize,
    projects: HashMap<Arc<str>, usize>,
    users: HashMap<Arc<str>, usize>,
    sources: HashMap<IpAddr, usize>,
}

/// The right to one allocation, given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    project: Arc<str>,
    user: Arc<str>,
    source: IpAddr,
    held: Arc<Mutex<Held>>,
}

impl Quotas {
    /// Nothing is taken yet.
    pub fn new(limits: Quota) -> Self {
        Self {
            limits,
            held: Arc::default(),
        }
    }

    /// Takes one, where none of the limits is reached. `user` names the holder with the project.
    pub fn take(&self, project: &Arc<str>, user: &Arc<str>, source: IpAddr) -> Option<Permit> {
        let source = place(source);
        let mut held = self.held.lock();
        let of = |count: Option<&usize>| count.copied().unwrap_or(0);
        let is_free = held.whole < self.limits.whole
            && of(held.projects.get(project)) < self.limits.per_project
            && of(held.users.get(user)) < self.limits.per_user
            && of(held.sources.get(&source)) < self.limits.per_source;
        if !is_free {
            return None;
        }
        held.whole += 1;
        *held.projects.entry(Arc::clone(project)).or_default() += 1;
        *held.users.entry(Arc::clone(user)).or_default() += 1;
        *held.sources.entry(source).or_default() += 1;
        drop(held);
        Some(Permit {
            project: Arc::clone(project),
            user: Arc::clone(user),
            source,
            held: Arc::clone(&self.held),
        })
    }

    /// How many there are.
    pub fn taken(&self) -> usize {
        self.held.lock().whole
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        held.whole = held.whole.saturating_sub(1);
        give_back(&mut held.projects, &self.project);
        give_back(&mut held.users, &self.user);
        give_back(&mut held.sources, &self.source);
    }
}

fn give_back<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// What a source is counted by: who has one address of an IPv6 network has all of them.
pub(crate) fn place(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_holds_and_what_is_given_back_can_be_taken() {
        let quotas = Quotas::new(Quota {
            whole: 4,
            per_project: 3,
            per_user: 2,
            per_source: 2,
        });
        let take = |project: &str, user: &str, source: &str| {
            quotas.take(&project.into(), &user.into(), source.parse().unwrap())
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
    fn nothing_is_kept_of_what_was_given_back() {
        let quotas = Quotas::new(Quota {
            whole: 1,
            per_project: 1,
            per_user: 1,
            per_source: 1,
        });
        drop(quotas.take(&"p".into(), &"u".into(), "192.0.2.1".parse().unwrap()));
        let held = quotas.held.lock();
        assert!(held.projects.is_empty() && held.users.is_empty() && held.sources.is_empty());
    }
}
