//! Addresses of engines, and the resolution of their names.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use rustls_pki_types::ServerName;

/// Host and port of an engine, or of a service behind an agent.
///
/// Written `host:port`, `host` (port 443), `[v6]:port` or `https://host[:port]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    /// Creates an address from a host name or an address literal (IPv6 without brackets).
    pub fn new(host: impl Into<String>, port: u16) -> Result<Self, ParseHostPortError> {
        let host = host.into();
        if !is_host(&host) {
            return Err(ParseHostPortError);
        }
        Ok(Self { host, port })
    }

    /// The name or the address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server name for SNI, which the peer's certificate must match.
    pub fn server_name(&self) -> Result<ServerName<'static>, ParseHostPortError> {
        ServerName::try_from(self.host.clone()).map_err(|_invalid| ParseHostPortError)
    }

    /// Resolves the host to addresses, in the order to try them.
    ///
    /// `localhost` and names under it resolve to loopback without a resolver (RFC 6761 section
    /// 6.3). Not every resolver does that, and an engine on this machine must be reachable.
    pub async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        if is_localhost(&self.host) {
            return Ok(vec![
                SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port),
                SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), self.port),
            ]);
        }
        let addresses: Vec<_> = tokio::net::lookup_host((self.host.as_str(), self.port))
            .await?
            .collect();
        if addresses.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the name has no address",
            ));
        }
        Ok(addresses)
    }
}

impl FromStr for HostPort {
    type Err = ParseHostPortError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.strip_prefix("https://").unwrap_or(text);
        let text = text.strip_suffix('/').unwrap_or(text);
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or(ParseHostPortError)?;
            host.parse::<Ipv6Addr>()
                .map_err(|_invalid| ParseHostPortError)?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(ParseHostPortError),
            }
        } else {
            match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            }
        };
        let port = match port {
            Some(port) => parse_port(port)?,
            None => HTTPS_PORT,
        };
        Self::new(host, port)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The text is not `host:port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a `host:port`")]
pub struct ParseHostPortError;

/// True for names that are never sent to a resolver (RFC 6761 section 6.3).
pub(crate) fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let suffix = host.rsplit('.').next().unwrap_or(host);
    suffix.eq_ignore_ascii_case("localhost")
}

/// Accepts only digits (`parse` would accept a sign), 1 to 65535.
pub(crate) fn parse_port(text: &str) -> Result<u16, ParseHostPortError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ParseHostPortError);
    }
    match text.parse() {
        Ok(0) | Err(_) => Err(ParseHostPortError),
        Ok(port) => Ok(port),
    }
}

fn is_host(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok()
        || (!host.is_empty()
            && host.len() <= MAX_NAME
            && host
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')))
}

/// The port of an engine address without a port.
const HTTPS_PORT: u16 = 443;

/// RFC 1035 section 2.3.4, in its textual form.
const MAX_NAME: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_ports_and_links_are_read() {
        for (text, host, port) in [
            ("engine.localhost:8443", "engine.localhost", 8443),
            ("engine.example", "engine.example", 443),
            ("https://engine.example", "engine.example", 443),
            ("https://engine.example:8443/", "engine.example", 8443),
            ("127.0.0.1:80", "127.0.0.1", 80),
            ("[::1]:8443", "::1", 8443),
            ("[::1]", "::1", 443),
        ] {
            let address: HostPort = text.parse().unwrap();
            assert_eq!((address.host(), address.port()), (host, port), "{text}");
        }
    }

    #[test]
    fn invalid_addresses_are_refused() {
        for text in [
            "",
            ":80",
            "host:",
            "host:0",
            "host:+1",
            "host:65536",
            "a b:1",
            "::1",
            "[::1",
            "[x]:1",
        ] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }

    #[test]
    fn display_round_trips() {
        for text in ["engine.localhost:8443", "[::1]:8443"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
    }

    #[tokio::test]
    async fn names_under_localhost_are_loopback_without_a_resolver() {
        let address: HostPort = "Demo.t.engine.LOCALHOST:8443".parse().unwrap();
        let addresses = address.resolve().await.unwrap();
        assert!(
            addresses
                .iter()
                .all(|a| a.ip().is_loopback() && a.port() == 8443)
        );
        assert_eq!(addresses.len(), 2);
        assert!(!is_localhost("localhost.example"));
        assert!(!is_localhost("notlocalhost"));
    }
}
