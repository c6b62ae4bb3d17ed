//! The relay's own addresses: the local ones of its sockets, and the public ones.

use std::net::{IpAddr, SocketAddr};

use crate::config::RelayConfig;

/// Translates between local and public addresses, which differ behind a NAT.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    relay: RelayConfig,
}

impl Addresses {
    pub(crate) fn new(relay: RelayConfig) -> Self {
        Self { relay }
    }

    /// Local address of sockets of this family (0: IPv4, 1: IPv6).
    pub(crate) fn bind(&self, family: usize) -> Option<IpAddr> {
        self.relay.bind.get(family).copied().flatten()
    }

    /// Public address of this family.
    pub(crate) fn announced(&self, family: usize) -> Option<IpAddr> {
        self.relay.announced.get(family).copied().flatten()
    }

    /// Destination of a packet to this peer. Another allocation of this relay is reached directly,
    /// because a NAT may not support hairpinning.
    pub(crate) fn to_local(&self, peer: SocketAddr) -> SocketAddr {
        self.translate(peer, |bound, announced| (announced, bound))
    }

    /// Sender of a packet, with the address that clients use.
    pub(crate) fn to_public(&self, peer: SocketAddr) -> SocketAddr {
        self.translate(peer, |bound, announced| (bound, announced))
    }

    fn translate(
        &self,
        peer: SocketAddr,
        direction: impl Fn(IpAddr, IpAddr) -> (IpAddr, IpAddr),
    ) -> SocketAddr {
        let family = usize::from(peer.is_ipv6());
        let (Some(bound), Some(announced)) = (self.bind(family), self.announced(family)) else {
            return peer;
        };
        let (from, to) = direction(bound, announced);
        let is_ours = peer.ip() == from && self.relay.ports.contains(&peer.port());
        if is_ours && !bound.is_unspecified() {
            SocketAddr::new(to, peer.port())
        } else {
            peer
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(bind: &str, announced: &str) -> Addresses {
        Addresses::new(RelayConfig {
            bind: [Some(bind.parse().unwrap()), None],
            announced: [Some(announced.parse().unwrap()), None],
            ports: 40_000..=49_999,
        })
    }

    #[test]
    fn two_clients_of_one_relay_connect_behind_a_nat() {
        let relay = addresses("10.0.0.7", "198.41.0.4");
        let outer: SocketAddr = "198.41.0.4:40001".parse().unwrap();
        let inner: SocketAddr = "10.0.0.7:40001".parse().unwrap();
        assert_eq!(relay.to_local(outer), inner);
        assert_eq!(relay.to_public(inner), outer);
        for other in [
            "198.41.0.4:22",
            "10.0.0.7:22",
            "1.1.1.1:40001",
            "[::1]:40001",
        ] {
            let other = other.parse().unwrap();
            assert_eq!(
                (relay.to_local(other), relay.to_public(other)),
                (other, other)
            );
        }
    }

    #[test]
    fn addresses_are_unchanged_without_a_nat() {
        for relay in [
            addresses("198.41.0.4", "198.41.0.4"),
            addresses("0.0.0.0", "198.41.0.4"),
        ] {
            let own = "198.41.0.4:40001".parse().unwrap();
            assert_eq!((relay.to_local(own), relay.to_public(own)), (own, own));
        }
    }
}
