//! Addresses that are reached without a proxy.

use std::net::IpAddr;

use crate::{
    HostPort,
    address::{is_localhost, parse_port},
};

/// The entries of `NO_PROXY`. An entry that cannot be parsed has no effect, as in other programs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Exceptions(Vec<Exception>);

#[derive(Debug, PartialEq, Eq)]
struct Exception {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Debug, PartialEq, Eq)]
enum Hosts {
    All,
    /// A name and the names under it, in lower case.
    Domain(String),
    Network {
        address: IpAddr,
        prefix: u32,
    },
}

impl Exceptions {
    pub(super) fn parse(list: &str) -> Self {
        let entries = list.split(|c: char| c == ',' || c.is_whitespace());
        Self(entries.filter_map(Exception::parse).collect())
    }

    pub(super) fn contains(&self, address: &HostPort) -> bool {
        let host = address.host().trim_end_matches('.').to_ascii_lowercase();
        let ip = host.parse().ok().map(canonical);
        self.0.iter().any(|exception| {
            exception.port.is_none_or(|port| port == address.port())
                && exception.hosts.contain(&host, ip)
        })
    }
}

impl Exception {
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = split_port(text)?;
        let hosts = if host == "*" {
            Hosts::All
        } else if let Some(network) = network(host) {
            network
        } else {
            let name = host.strip_prefix('*').unwrap_or(host);
            let name = name.trim_matches('.').to_ascii_lowercase();
            if name.is_empty() {
                return None;
            }
            Hosts::Domain(name)
        };
        Some(Self { hosts, port })
    }
}

impl Hosts {
    fn contain(&self, host: &str, ip: Option<IpAddr>) -> bool {
        match self {
            Self::All => true,
            Self::Domain(name) => host
                .strip_suffix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
            Self::Network { address, prefix } => {
                ip.is_some_and(|ip| is_in_network(ip, *address, *prefix))
            }
        }
    }
}

/// True for addresses of this machine, which a proxy would reach on another one: loopback,
/// `localhost` and names under it, and the unspecified address, which connects to this machine.
pub(super) fn is_this_machine(host: &str) -> bool {
    match host.parse().map(canonical) {
        Ok(ip) => ip.is_loopback() || ip.is_unspecified(),
        Err(_name) => is_localhost(host),
    }
}

/// Splits `host`, `host:port`, `[v6]:port` or `v6`.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(parse_port(port).ok()?))),
            None if rest.is_empty() => Some((host, None)),
            None => None,
        };
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => Some((host, Some(parse_port(port).ok()?))),
        // Further colons: an address of IPv6.
        _ => Some((text, None)),
    }
}

/// Parses an address, or a network such as `10.0.0.0/8`.
fn network(text: &str) -> Option<Hosts> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.map_or(Some(bits), |prefix| prefix.parse().ok())?;
    (prefix <= bits).then_some(Hosts::Network { address, prefix })
}

fn is_in_network(ip: IpAddr, network: IpAddr, prefix: u32) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            let differing = u32::from(ip) ^ u32::from(network);
            differing.leading_zeros() >= prefix
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            let differing = u128::from(ip) ^ u128::from(network);
            differing.leading_zeros() >= prefix
        }
        _ => false,
    }
}

/// An IPv4 address in the form of IPv6 is the same address.
fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}
