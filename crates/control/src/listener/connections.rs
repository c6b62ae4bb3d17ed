//! Limits on open connections: in total, and of one source.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use nix::sys::resource::{Resource, getrlimit};
use parking_lot::Mutex;

use crate::people::throttle::place;
use crate::rate_limit::LimitsConfig;

/// Counts the open connections of all listeners. Its size is bounded by their number.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    total: usize,
    per_source: usize,
    /// A proxy carries the requests of everybody: it has no limit of its own.
    trusted_proxies: Vec<IpNet>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    count: usize,
    by_source: HashMap<IpAddr, usize>,
}

/// Permission for one connection, released when it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    /// `None`: a trusted proxy.
    source: Option<IpAddr>,
}

/// The limit that refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exceeded {
    /// The process has as many connections as it may have.
    Total,
    /// The source has as many connections as it may have.
    Source,
}

impl Exceeded {
    /// The word in metrics.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Source => "source",
        }
    }
}

impl ConnectionLimit {
    /// The limits of the configuration. Without a configured total it follows from the descriptors of
    /// the process.
    pub(crate) fn new(limits: &LimitsConfig, trusted_proxies: &[IpNet]) -> Arc<Self> {
        let total = limits.max_connections.unwrap_or_else(|| {
            let left = descriptors().saturating_sub(OWN_DESCRIPTORS);
            left.clamp(1, MAX_CONNECTIONS)
        });
        let share = (total / SOURCES).max(MIN_PER_SOURCE);
        Arc::new(Self {
            total,
            per_source: limits.max_connections_per_source.unwrap_or(share),
            trusted_proxies: trusted_proxies.to_vec(),
            open: Mutex::default(),
        })
    }

    /// Counts one more connection from `peer`.
    ///
    /// # Errors
    /// A limit is reached.
    pub(super) fn acquire(self: &Arc<Self>, peer: IpAddr) -> Result<ConnectionPermit, Exceeded> {
        let peer = peer.to_canonical();
        let is_proxy = self
            .trusted_proxies
            .iter()
            .any(|network| network.contains(&peer));
        let source = (!is_proxy).then(|| place(peer));
        let mut open = self.open.lock();
        if open.count >= self.total {
            return Err(Exceeded::Total);
        }
        if let Some(source) = source {
            let count = open.by_source.entry(source).or_default();
            if *count >= self.per_source {
                return Err(Exceeded::Source);
            }
            *count += 1;
        }
        open.count += 1;
        Ok(ConnectionPermit {
            limit: Arc::clone(self),
            source,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.limit.open.lock();
        open.count = open.count.saturating_sub(1);
        if let Some(source) = self.source
            && let Entry::Occupied(mut count) = open.by_source.entry(source)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The descriptors that the process may open. A system that does not say is taken for a small one.
fn descriptors() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _hard)| soft);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// The database, mail, webhooks, OpenID providers, logs and keys.
const OWN_DESCRIPTORS: usize = 256;
/// Enough for one process; a balancer holds a few for each of its peers.
const MAX_CONNECTIONS: usize = 10_000;
/// One source may have what is left when as many sources do the same.
const SOURCES: usize = 8;
/// For one source where that share is very small: a browser opens half a dozen.
const MIN_PER_SOURCE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(total: usize, per_source: usize) -> Arc<ConnectionLimit> {
        Arc::new(ConnectionLimit {
            total,
            per_source,
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()],
            open: Mutex::default(),
        })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_source_has_its_own_share_of_the_total() {
        let limit = limit(5, 2);
        let first = limit.acquire(ip("2001:db8::1")).unwrap();
        let _second = limit.acquire(ip("2001:db8::2")).unwrap();
        let refused = limit.acquire(ip("2001:db8::3")).unwrap_err();
        assert_eq!(refused, Exceeded::Source, "a /64 is one source");
        let _other = limit.acquire(ip("2001:db8:0:1::1")).unwrap();
        let _mapped = limit.acquire(ip("::ffff:192.0.2.1")).unwrap();
        let _plain = limit.acquire(ip("192.0.2.1")).unwrap();
        let refused = limit.acquire(ip("192.0.2.2")).unwrap_err();
        assert_eq!(refused, Exceeded::Total);
        drop(first);
        let refused = limit.acquire(ip("192.0.2.1")).unwrap_err();
        assert_eq!(refused, Exceeded::Source, "a mapped address is the same");
        let _again = limit.acquire(ip("2001:db8::4")).unwrap();
    }

    #[test]
    fn a_trusted_proxy_has_the_total_and_no_share() {
        let limit = limit(5, 2);
        let permits: Vec<_> = (0..5)
            .map(|_| limit.acquire(ip("10.1.2.3")).unwrap())
            .collect();
        assert_eq!(limit.acquire(ip("10.1.2.3")).unwrap_err(), Exceeded::Total);
        drop(permits);
        let open = limit.open.lock();
        assert_eq!((open.count, open.by_source.len()), (0, 0));
    }
}
