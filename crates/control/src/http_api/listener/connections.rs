//! Limits on open connections: in total, and per source.

use std::net::IpAddr;
use std::sync::Arc;

use daemon::connections::{ConnectionLimitError, ConnectionPermit, Connections, descriptors};
use ipnet::IpNet;

use crate::http_api::rate_limit::LimitsConfig;

/// Counts the open connections of all listeners.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    connections: Arc<Connections>,
    /// A trusted proxy carries the requests of many users, so it has no limit of its own.
    trusted_proxies: Vec<IpNet>,
}

impl ConnectionLimit {
    /// The limits of the configuration. Without a configured total, it depends on the descriptor
    /// limit of the process.
    pub(crate) fn new(limits: &LimitsConfig, trusted_proxies: &[IpNet]) -> Arc<Self> {
        let total = limits.max_connections.unwrap_or_else(|| {
            let remaining = descriptors().saturating_sub(OWN_DESCRIPTORS);
            remaining.clamp(1, MAX_CONNECTIONS)
        });
        let share = (total / SOURCES).max(MIN_PER_SOURCE);
        let per_source = limits.max_connections_per_source.unwrap_or(share);
        Arc::new(Self {
            connections: Connections::new(total, per_source),
            trusted_proxies: trusted_proxies.to_vec(),
        })
    }

    /// Counts one more connection from `peer`.
    ///
    /// # Errors
    /// A limit is reached.
    pub(super) fn acquire(&self, peer: IpAddr) -> Result<ConnectionPermit, ConnectionLimitError> {
        let peer = peer.to_canonical();
        let mut proxies = self.trusted_proxies.iter();
        let is_proxy = proxies.any(|network| network.contains(&peer));
        self.connections.acquire((!is_proxy).then_some(peer))
    }

    /// Counts one more connection whose source is not known yet.
    ///
    /// # Errors
    /// The total is reached.
    pub(super) fn acquire_for_proxy(&self) -> Result<ConnectionPermit, ConnectionLimitError> {
        self.connections.acquire(None)
    }
}

/// Descriptors for the database, mail, webhooks, OpenID providers, logs and keys.
const OWN_DESCRIPTORS: usize = 256;
/// Enough for one process. A balancer has a few connections for each of its peers.
const MAX_CONNECTIONS: usize = 10_000;
/// Without a configured limit, one source may use the total divided by this number, so that several
/// sources together are needed to use up all connections.
const SOURCES: usize = 8;
/// Minimum for one source, if the total is small. A browser opens half a dozen connections.
const MIN_PER_SOURCE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(total: usize, per_source: usize) -> ConnectionLimit {
        ConnectionLimit {
            connections: Connections::new(total, per_source),
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()],
        }
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
        assert_eq!(refused, ConnectionLimitError::Source, "a /64 is one source");
        let _other = limit.acquire(ip("2001:db8:0:1::1")).unwrap();
        let _mapped = limit.acquire(ip("::ffff:192.0.2.1")).unwrap();
        let _plain = limit.acquire(ip("192.0.2.1")).unwrap();
        let refused = limit.acquire(ip("192.0.2.2")).unwrap_err();
        assert_eq!(refused, ConnectionLimitError::Total);
        drop(first);
        let refused = limit.acquire(ip("192.0.2.1")).unwrap_err();
        assert_eq!(
            refused,
            ConnectionLimitError::Source,
            "a mapped address is the same"
        );
        let _again = limit.acquire(ip("2001:db8::4")).unwrap();
    }

    #[test]
    fn a_trusted_proxy_is_limited_only_by_the_total() {
        let limit = limit(5, 2);
        let permits: Vec<_> = (0..5)
            .map(|_| limit.acquire(ip("::ffff:10.1.2.3")).unwrap())
            .collect();
        assert_eq!(
            limit.acquire(ip("10.1.2.3")).unwrap_err(),
            ConnectionLimitError::Total
        );
        drop(permits);
        assert!(limit.acquire(ip("10.1.2.3")).is_ok());
    }
}
