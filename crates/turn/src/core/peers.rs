//! Rules for peers.
//!
//! A relay is inside the operator's network and sends data for external clients. Without these
//! rules they could reach that network.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use ipnet::IpNet;
use types::network::is_public;

/// The rules for peers.
#[derive(Clone, Debug)]
pub struct Peers {
    /// Special-purpose networks that are permitted.
    pub allowed: Vec<IpNet>,
    /// Addresses of the relay itself, as clients and peers use them.
    pub own: Vec<IpAddr>,
    /// The ports of allocations, on each address of `own`.
    pub relay_ports: RangeInclusive<u16>,
    /// Listeners for clients, which are never peers.
    pub listeners: Vec<SocketAddr>,
}

impl Peers {
    /// True if a permission for this address is possible.
    pub fn permits_ip(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.own.contains(&ip) || self.is_allowed(ip) || is_public(ip)
    }

    /// True if data may be sent to this peer. Of the relay's own addresses only the ports of
    /// allocations are permitted, so that two clients of one relay can connect. Nothing else on
    /// this machine may be a peer.
    pub fn permits_peer(&self, peer: SocketAddr) -> bool {
        let ip = peer.ip().to_canonical();
        if peer.port() == 0 || self.is_listener(ip, peer.port()) {
            return false;
        }
        if self.is_own(ip) {
            return self.relay_ports.contains(&peer.port());
        }
        self.permits_ip(ip)
    }

    /// True if this is an address of the relay itself, of which only allocations may be reached.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.own.contains(&ip) && !self.is_allowed(ip)
    }

    fn is_allowed(&self, ip: IpAddr) -> bool {
        self.allowed.iter().any(|network| network.contains(&ip))
    }

    fn is_listener(&self, ip: IpAddr, port: u16) -> bool {
        self.listeners.iter().any(|listener| {
            let is_here = listener.ip() == ip
                || self.own.contains(&ip)
                || listener.ip().is_unspecified() && ip.is_loopback();
            listener.port() == port && is_here
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allowed: &[&str]) -> Peers {
        Peers {
            allowed: allowed.iter().map(|net| net.parse().unwrap()).collect(),
            own: vec!["198.41.0.4".parse().unwrap(), "2a00::1".parse().unwrap()],
            relay_ports: 40_000..=49_999,
            listeners: vec![
                "198.41.0.4:3478".parse().unwrap(),
                "[2a00::1]:5349".parse().unwrap(),
            ],
        }
    }

    #[test]
    fn special_addresses_are_not_peers() {
        let rules = rules(&[]);
        for special in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "3fff::1",
        ] {
            let ip = special.parse().unwrap();
            assert!(!rules.permits_ip(ip), "{special}");
            assert!(!rules.permits_peer(SocketAddr::new(ip, 9)), "{special}");
        }
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1",
            "2a00::2",
        ] {
            let ip = public.parse().unwrap();
            assert!(rules.permits_ip(ip), "{public}");
            assert!(rules.permits_peer(SocketAddr::new(ip, 9)), "{public}");
            assert!(!rules.permits_peer(SocketAddr::new(ip, 0)), "port 0");
        }
    }

    #[test]
    fn only_listed_networks_are_permitted() {
        let rules = rules(&["127.0.0.0/8", "10.1.0.0/16"]);
        for (address, passes) in [
            ("127.0.0.1:9", true),
            ("[::ffff:127.0.0.1]:9", true),
            ("10.1.2.3:9", true),
            ("10.2.2.3:9", false),
            ("[::1]:9", false),
        ] {
            assert_eq!(
                rules.permits_peer(address.parse().unwrap()),
                passes,
                "{address}"
            );
        }
    }

    /// Two clients of one relay can connect; nothing else of the relay is a peer.
    #[test]
    fn only_allocations_of_the_relay_itself_are_peers() {
        for rules in [rules(&[]), rules(&["2a00::/16"])] {
            for (address, passes) in [
                ("198.41.0.4:40000", true),
                ("198.41.0.4:49999", true),
                ("198.41.0.4:39999", false),
                ("198.41.0.4:22", false),
                ("198.41.0.4:3478", false),
                ("198.41.0.4:5349", false),
                ("[2a00::1]:5349", false),
                ("[2a00::1]:40000", true),
            ] {
                assert_eq!(
                    rules.permits_peer(address.parse().unwrap()),
                    passes,
                    "{address}"
                );
            }
        }
        let anywhere = Peers {
            allowed: vec!["127.0.0.0/8".parse().unwrap()],
            own: vec![],
            relay_ports: 1..=65_535,
            listeners: vec!["0.0.0.0:3478".parse().unwrap()],
        };
        assert!(!anywhere.permits_peer("127.0.0.1:3478".parse().unwrap()));
        assert!(anywhere.permits_peer("127.0.0.1:3479".parse().unwrap()));
    }
}
