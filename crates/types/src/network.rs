//! Classification of public and special-purpose addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True if the address is on the public internet: it is not reserved for another purpose (IANA's
/// special-purpose registries, RFC 6890), not multicast, and does not embed another address.
/// Addresses of this machine, the local network and a provider's internal services are not public.
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !is_special_v4(ip),
        IpAddr::V6(ip) => !is_special_v6(ip),
    }
}

fn is_special_v4(ip: Ipv4Addr) -> bool {
    // Azure's service for virtual machines has this public address.
    const WIRE_SERVER: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
    let [a, b, c, _] = ip.octets();
    match (a, b, c) {
        // This network, this machine, private.
        (0 | 10 | 127, ..) => true,
        // Addresses behind carriers' NAT; some providers' metadata services use this range.
        (100, 64..=127, _) => true,
        // Link-local; most providers' metadata services use this range.
        (169, 254, _) => true,
        (172, 16..=31, _) | (192, 168, _) => true,
        // Protocol assignments, documentation, 6to4 relays, benchmarks.
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 18..=19, _) => true,
        (198, 51, 100) | (203, 0, 113) => true,
        // Multicast, reserved, broadcast.
        (224.., ..) => true,
        _ => ip == WIRE_SERVER,
    }
}

fn is_special_v6(ip: Ipv6Addr) -> bool {
    match ip.segments() {
        // Protocol assignments including Teredo; documentation; 6to4, which embeds an IPv4 address.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] => true,
        // Documentation.
        [0x3fff, 0..=0xfff, ..] => true,
        // Global unicast. All other ranges are loopback, link-local, unique local, multicast,
        // translation to IPv4, or unassigned.
        [0x2000..=0x3fff, ..] => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_not_public() {
        for special in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:198.41.0.4",
            "::192.0.2.1",
            "64:ff9b::c629:4",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:1ff::1",
            "2001:db8::1",
            "2002:c629:4::1",
            "3fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(special.parse().unwrap()), "{special}");
        }
        for public in [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "2001:200::1",
            "2606:4700::1111",
            "2a00::1",
            "3ffe::1",
            "3fff:1000::1",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }
}
