//! Permitted targets of webhooks, and of other requests to addresses that users choose. The platform
//! sends such a request from inside the network. Without a check, it could reach internal services
//! (server-side request forgery).
//!
//! The connection uses exactly the checked addresses. Names are resolved here, for each
//! attempt, and the connection uses the permitted results. A name that changes its address a moment
//! later gains nothing.

use std::error::Error as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::Url;
use reqwest::dns::{Name, Resolve, Resolving};
use tokio::net::lookup_host;
use types::network::is_public;

use crate::config::is_loopback;

/// Permitted addresses for requests: public ones, and networks of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Targets(Arc<[IpNet]>);

/// Webhooks may not be sent to the address.
#[derive(Debug, thiserror::Error)]
#[error("webhooks are not sent to this address")]
pub(super) struct RefusedTarget;

impl Targets {
    pub(crate) fn new(allowed: &[IpNet]) -> Self {
        Self(allowed.into())
    }

    /// Checks the address of a webhook as far as possible without resolving it.
    ///
    /// # Errors
    /// The text for the user who wrote the address.
    pub(super) fn parse(&self, text: &str) -> Result<Url, &'static str> {
        let url =
            Url::parse(text).map_err(|_| "expected an address such as https://example.com/in")?;
        if url.scheme() != "https" {
            return Err("webhooks are only sent to https addresses");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the address must not have a user or a password");
        }
        if !self.permits_host(&url) {
            return Err("webhooks are only sent to public addresses");
        }
        Ok(url)
    }

    /// True if the host is permitted. A name is always permitted here, because it is checked when
    /// it is resolved. The HTTP library does not resolve a host that is an address.
    pub(crate) fn permits_host(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => self.permits(ip),
            Err(_) if is_loopback(host) => self.permits(Ipv4Addr::LOCALHOST.into()),
            Err(_) => !host.is_empty(),
        }
    }

    /// True if a request failed because its name has no permitted address.
    pub(crate) fn is_cause_of(error: &reqwest::Error) -> bool {
        let mut cause = error.source();
        while let Some(error) = cause {
            if error.is::<RefusedTarget>() {
                return true;
            }
            cause = error.source();
        }
        false
    }

    /// True if requests to the address are permitted.
    pub(crate) fn permits(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        is_public(ip) || self.0.iter().any(|network| network.contains(&ip))
    }
}

impl Resolve for Targets {
    fn resolve(&self, name: Name) -> Resolving {
        let targets = self.clone();
        Box::pin(async move {
            let found = lookup_host((name.as_str(), 0)).await?;
            let permitted: Vec<SocketAddr> = found
                .filter(|address| targets.permits(address.ip()))
                .collect();
            if permitted.is_empty() {
                return Err(RefusedTarget.into());
            }
            let addresses: reqwest::dns::Addrs = Box::new(permitted.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(targets: &Targets, url: &str) -> bool {
        targets.parse(url).is_err()
    }

    #[test]
    fn addresses_that_are_not_public_are_refused_in_every_notation() {
        let targets = Targets::new(&[]);
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "0",
            "10.1.2.3",
            "100.64.0.1",
            "169.254.169.254",
            "172.31.255.255",
            "192.168.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[fe80::1]",
            "[fd00:ec2::254]",
            "[ff02::1]",
            "[2001::1]",
            "[2001:db8::1]",
            "[2002:7f00:1::]",
            "localhost",
            "LOCALHOST",
            "a.localhost",
            "１２７.0.0.1",
        ] {
            assert!(refused(&targets, &format!("https://{host}/")), "{host}");
        }
        for host in [
            "8.8.8.8",
            "[2606:4700::1111]",
            "example.com",
            "10.example.com",
        ] {
            assert!(
                !refused(&targets, &format!("https://{host}:8443/in?x=1")),
                "{host}"
            );
        }
    }

    #[test]
    fn the_address_is_https_without_credentials() {
        let targets = Targets::new(&[]);
        for url in [
            "http://example.com/",
            "ftp://example.com/",
            "https://user@example.com/",
            "https://user:pass@example.com/",
            "https://:pass@example.com/",
            "https://",
            "example.com",
            "",
        ] {
            assert!(refused(&targets, url), "{url}");
        }
    }

    #[test]
    fn the_configuration_allows_networks() {
        let targets = Targets::new(&["127.0.0.0/8".parse().unwrap()]);
        assert!(!refused(&targets, "https://127.0.0.1:1234/"));
        assert!(!refused(&targets, "https://[::ffff:127.0.0.1]/"));
        assert!(!refused(&targets, "https://localhost/"));
        assert!(refused(&targets, "https://10.0.0.1/"));
        assert!(refused(&targets, "https://[::1]/"));
    }

    /// The name looks harmless, but it resolves to an internal address.
    #[tokio::test]
    async fn a_name_is_checked_by_its_resolved_addresses() {
        let name = || "localhost".parse::<Name>().unwrap();
        let refused = Targets::new(&[]).resolve(name()).await.err().unwrap();
        assert!(refused.is::<RefusedTarget>());
        let allowed = Targets::new(&["127.0.0.0/8".parse().unwrap()]);
        let mut found = allowed.resolve(name()).await.unwrap();
        assert!(found.all(|address| address.ip() == Ipv4Addr::LOCALHOST));
    }
}
