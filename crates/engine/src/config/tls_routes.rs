//! `tls.routes`: server names whose connections go to other servers of the operator.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use daemon::config::values::is_loopback;
use daemon::config::{ConfigError, ConfigErrors};
use http::uri::Authority;
use schemars::JsonSchema;
use serde::Deserialize;

/// An operator has a few servers on one port. The table is searched once for each connection.
const MAX_ROUTES: usize = 100;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TlsRouteSection {
    /// The server name of the handshake (SNI). It is a host name other than the engine's own ones,
    /// and none of `domains`. Required.
    #[schemars(example = "platform.example.com")]
    pub(super) server_name: Option<String>,
    /// The host or address, and the port, of the server. Required.
    #[schemars(example = "127.0.0.1:8444")]
    pub(super) to: Option<String>,
    /// Sends a header of the PROXY protocol (version 2) first, which names the source of the
    /// connection. The server must expect it.
    pub(super) proxy_protocol: bool,
}

/// Server names whose connections the engine forwards, unread, to other servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsRoutes(HashMap<String, Arc<TlsRoute>>);

/// A server that serves TLS for one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsRoute {
    /// `HOST:PORT`. The host is resolved for each connection.
    pub to: String,
    /// True if the server expects a header of the PROXY protocol, version 2.
    pub proxy_protocol: bool,
}

impl TlsRoutes {
    /// The server of a name in lower case.
    pub fn get(&self, server_name: &str) -> Option<&Arc<TlsRoute>> {
        self.0.get(server_name)
    }
}

/// Checks the list. `host` is the engine's host in lower case, and `listen` the address that the
/// routes share.
///
/// # Errors
/// All mistakes.
pub(super) fn check(
    sections: Vec<TlsRouteSection>,
    host: &str,
    listen: Option<SocketAddr>,
) -> Result<TlsRoutes, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    if sections.len() > MAX_ROUTES {
        let message = format!("there are more than {MAX_ROUTES} routes");
        errors.push(ConfigError::new("tls.routes", message));
    }
    let mut routes = TlsRoutes::default();
    for (index, section) in sections.into_iter().take(MAX_ROUTES).enumerate() {
        let key = format!("tls.routes.{index}");
        let name = errors.keep(server_name(&key, section.server_name, host));
        let to = errors.keep(destination(&key, section.to, listen));
        let (Some(name), Some(to)) = (name, to) else {
            continue;
        };
        let route = TlsRoute {
            to,
            proxy_protocol: section.proxy_protocol,
        };
        if routes.0.insert(name, Arc::new(route)).is_some() {
            let key = format!("{key}.server_name");
            errors.push(ConfigError::new(&key, "this name has a route already"));
        }
    }
    errors.finish(Some(routes))
}

/// The name in lower case.
fn server_name(key: &str, value: Option<String>, host: &str) -> Result<String, ConfigError> {
    let key = format!("{key}.server_name");
    let value = daemon::config::values::required(&key, value)?;
    let name = value.to_ascii_lowercase();
    let is_dns_name = rustls::pki_types::DnsName::try_from(name.as_str()).is_ok();
    if !is_dns_name || name.ends_with('.') {
        let message = "this is not a host name; connections without a server name have no route";
        return Err(ConfigError::new(&key, message));
    }
    let published = name
        .strip_suffix(host)
        .is_some_and(|rest| rest.is_empty() || rest == "t." || rest.ends_with(".t."));
    if published {
        let message = "the engine serves this name itself";
        return Err(ConfigError::new(&key, message));
    }
    Ok(name)
}

/// `HOST:PORT` in one spelling. It is not the engine itself, as far as an address shows that: the
/// connection would return to its route for ever.
fn destination(
    key: &str,
    value: Option<String>,
    listen: Option<SocketAddr>,
) -> Result<String, ConfigError> {
    let key = format!("{key}.to");
    let value = daemon::config::values::required(&key, value)?;
    let authority: Option<Authority> = value.parse().ok();
    let authority = authority.filter(|authority| !authority.as_str().contains('@'));
    let port = authority.as_ref().and_then(Authority::port_u16);
    let host = authority.as_ref().map(Authority::host).unwrap_or_default();
    match port {
        Some(port) if listen.is_some_and(|listen| is_own(host, port, listen)) => {
            let message =
                format!("{value:?} is the engine itself; use the port of the other server");
            Err(ConfigError::new(&key, message))
        }
        Some(port) if port > 0 => Ok(value),
        _ => {
            let message = format!("{value:?} is not HOST:PORT, such as 127.0.0.1:8444");
            Err(ConfigError::new(&key, message))
        }
    }
}

/// True if `listen` accepts the connections to a host and port of this machine.
fn is_own(host: &str, port: u16, listen: SocketAddr) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    let is_same = literal.parse::<IpAddr>().is_ok_and(|ip| ip == listen.ip());
    let is_unspecified = listen.ip().is_unspecified();
    // The whole network of loopback reaches an unspecified address.
    port == listen.port() && (is_same || (is_unspecified && is_loopback(host)))
}
