//! The private service behind a tunnel, and its text forms.

use std::{fmt, net::Ipv4Addr, path::PathBuf, str::FromStr, sync::Arc};

use rustls_pki_types::ServerName;

use crate::address::{HostPort, parse_port};
use crate::agent::tap::Tap;
use crate::agent::tunnel::{Connection, Observer};

/// Destination of the streams of a tunnel.
///
/// Written `8080` (on this machine), `host:port`, `http://host[:port]`, `https://host[:port]` or
/// `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// A TCP service; bytes are passed unchanged.
    Tcp(HostPort),
    /// A TCP service with TLS on this port. The edge terminates the TLS session with it, end to end
    /// through the tunnel (`upstream_tls`). The agent passes encrypted bytes, unless a tap
    /// [opens](crate::agent::tap::TlsInterceptor) them.
    Tls(HostPort),
    /// A Unix socket on this machine.
    Unix(PathBuf),
}

impl Target {
    /// True if the edge must use TLS to the service.
    pub fn wants_upstream_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The `Host` that a direct client of the service would send (RFC 9110 section 7.2: a default
    /// port is left out). A Unix socket has none.
    fn authority(&self) -> String {
        match self {
            Self::Tcp(address) if address.port() == 80 => bracketed(address.host()),
            Self::Tls(address) if address.port() == 443 => bracketed(address.host()),
            Self::Tcp(address) | Self::Tls(address) => address.to_string(),
            Self::Unix(_) => THIS_MACHINE.to_owned(),
        }
    }
}

impl FromStr for Target {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            // `unix:///run/x` and `unix:/run/x` are the same path.
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(ParseTargetError);
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        if let Some(rest) = text.strip_prefix("https://") {
            return with_default_port(rest, 443).map(Self::Tls);
        }
        if let Some(rest) = text.strip_prefix("http://") {
            return with_default_port(rest, 80).map(Self::Tcp);
        }
        if let Ok(port) = parse_port(text) {
            return HostPort::new(THIS_MACHINE, port)
                .map(Self::Tcp)
                .map_err(ParseTargetError::from);
        }
        // `:8080` is a form of other tools.
        let text = match text.strip_prefix(':') {
            Some(port) => format!("{THIS_MACHINE}:{port}"),
            None => text.to_owned(),
        };
        if !has_port(&text) {
            return Err(ParseTargetError);
        }
        Ok(Self::Tcp(text.parse()?))
    }
}

/// Destination of a tunnel's visitors, and the information that the service gets about them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Destination {
    /// The service.
    pub target: Target,
    /// Sends a PROXY header with the visitor's address at the start of each connection to the
    /// service. Only for tunnels with one visitor per stream: `tls`, `tcp` and private byte
    /// streams. A connection of an `http` tunnel has requests of many visitors, which
    /// `X-Forwarded-For` names.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Sets this host in requests instead of the public one. Only for tunnels with HTTP/1.1 to the
    /// service without `upstream_tls`: other bytes cannot be parsed and break the stream. With
    /// [`service_name`](Self::service_name) the agent uses TLS to the service.
    pub host_header: Option<HostHeader>,
    /// For a [`Target::Tls`]: the agent opens the TLS session with the service, and sends this name
    /// as SNI. The tunnel must not have `upstream_tls`, because then the edge opens a session of its
    /// own. The service uses HTTP/1.1.
    pub service_name: Option<ServiceName>,
}

impl Destination {
    /// Creates a destination without a PROXY header and without a host header.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            proxy_protocol: None,
            host_header: None,
            service_name: None,
        }
    }

    /// Sets [`proxy_protocol`](Self::proxy_protocol).
    #[must_use]
    pub fn with_proxy_protocol(self, version: ProxyProtocol) -> Self {
        Self {
            proxy_protocol: Some(version),
            ..self
        }
    }

    /// Sets [`host_header`](Self::host_header).
    #[must_use]
    pub fn with_host_header(self, host: HostHeader) -> Self {
        Self {
            host_header: Some(host),
            ..self
        }
    }

    /// Sets [`service_name`](Self::service_name).
    #[must_use]
    pub fn with_service_name(self, name: ServiceName) -> Self {
        Self {
            service_name: Some(name),
            ..self
        }
    }

    /// The `Host` of requests, if it differs from the public name.
    pub(crate) fn host(&self) -> Option<String> {
        match self.host_header.as_ref()? {
            HostHeader::Rewrite => Some(self.target.authority()),
            HostHeader::Value(host) => Some(host.clone()),
        }
    }
}

/// The name of a service in its TLS certificate: a host name, or an address without SNI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceName(ServerName<'static>);

impl ServiceName {
    /// The name of a direct client's session: the host that requests name, or else the host of the
    /// target.
    pub fn of_requests(target: &Target, host: Option<&HostHeader>) -> Self {
        let named = match host {
            Some(HostHeader::Value(host)) => host_of(host).parse().ok(),
            Some(HostHeader::Rewrite) | None => None,
        };
        let target = match target {
            Target::Tcp(address) | Target::Tls(address) => address.host(),
            Target::Unix(_) => THIS_MACHINE,
        };
        named.or_else(|| target.parse().ok()).unwrap_or_default()
    }

    pub(crate) fn to_server_name(&self) -> ServerName<'static> {
        self.0.clone()
    }
}

/// The name of this machine, for a host with characters that no certificate contains.
impl Default for ServiceName {
    fn default() -> Self {
        Self(ServerName::IpAddress(Ipv4Addr::LOCALHOST.into()))
    }
}

impl FromStr for ServiceName {
    type Err = ParseServiceNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = ServerName::try_from(text.to_owned());
        name.map(Self).map_err(|_invalid| ParseServiceNameError)
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_str())
    }
}

/// The text is not a name that a certificate can contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a host name or an address")]
pub struct ParseServiceNameError;

/// The host of a `Host` field, without its port and without brackets.
fn host_of(field: &str) -> &str {
    if let Some(rest) = field.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    field.split(':').next().unwrap_or_default()
}

impl From<Target> for Destination {
    fn from(target: Target) -> Self {
        Self::new(target)
    }
}

/// Options of [`Tunnel::forward`](crate::Tunnel::forward): the destination of the streams, and
/// their observers.
///
/// ```
/// # use svc_client::{ForwardOptions, Target};
/// # fn forwarding() -> Result<ForwardOptions, Box<dyn std::error::Error>> {
/// let forwarding = ForwardOptions::to("3000".parse::<Target>()?)
///     .with_observer(|connection| println!("{connection:?}"));
/// # Ok(forwarding)
/// # }
/// ```
#[derive(Clone)]
pub struct ForwardOptions {
    pub(crate) to: Destination,
    pub(crate) observer: Option<Observer>,
    pub(crate) tap: Option<Arc<dyn Tap>>,
}

impl ForwardOptions {
    /// Forwards to this service: a [`Target`] or a [`Destination`].
    pub fn to(destination: impl Into<Destination>) -> Self {
        Self {
            to: destination.into(),
            observer: None,
            tap: None,
        }
    }

    /// Calls `observer` at the start and the end of each stream. It must not block.
    #[must_use]
    pub fn with_observer(self, observer: impl Fn(Connection) + Send + Sync + 'static) -> Self {
        Self {
            observer: Some(Arc::new(observer)),
            ..self
        }
    }

    /// Lets `tap` observe the forwarded bytes.
    #[must_use]
    pub fn with_tap(self, tap: Arc<dyn Tap>) -> Self {
        Self {
            tap: Some(tap),
            ..self
        }
    }
}

impl<T: Into<Destination>> From<T> for ForwardOptions {
    fn from(to: T) -> Self {
        Self::to(to)
    }
}

impl fmt::Debug for ForwardOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardOptions")
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

/// The `Host` of requests for a service that refuses the public name, as development servers do. An
/// `Origin` that equals the public one is replaced as well, and a `Location` of this host in a
/// response becomes one of the public name.
///
/// Written `rewrite`, or as the host itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostHeader {
    /// The host and the port of the target.
    Rewrite,
    /// This name or address, with its port if it has one.
    Value(String),
}

impl FromStr for HostHeader {
    type Err = ParseHostHeaderError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "rewrite" {
            return Ok(Self::Rewrite);
        }
        http1::Authority::parse(text.as_bytes()).ok_or(ParseHostHeaderError)?;
        Ok(Self::Value(text.to_owned()))
    }
}

/// The text is not a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `rewrite`, or a name or an address with or without a port")]
pub struct ParseHostHeaderError;

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

impl FromStr for ProxyProtocol {
    type Err = ParseProxyProtocolError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "v1" => Ok(Self::V1),
            "v2" => Ok(Self::V2),
            _ => Err(ParseProxyProtocolError),
        }
    }
}

/// The text is not a version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a version of the PROXY protocol is v1 or v2")]
pub struct ParseProxyProtocolError;

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Tls(address) => write!(f, "https://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The text is not a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a target is a port, `host:port`, `https://host:port` or `unix:/path`")]
pub struct ParseTargetError;

impl From<crate::address::ParseHostPortError> for ParseTargetError {
    fn from(_: crate::address::ParseHostPortError) -> Self {
        Self
    }
}

/// A host in the form of a URL.
fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

fn with_default_port(text: &str, port: u16) -> Result<HostPort, ParseTargetError> {
    let text = text.strip_suffix('/').unwrap_or(text);
    if has_port(text) {
        return Ok(text.parse()?);
    }
    let host = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    Ok(HostPort::new(host, port)?)
}

fn has_port(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(_, port)| parse_port(port).is_ok())
        && !(text.starts_with('[') && text.ends_with(']'))
}

/// A bare port is a service on this machine; the name allows it to listen on either loopback
/// address.
const THIS_MACHINE: &str = "localhost";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_target_is_read() {
        for (text, written, tls) in [
            ("8080", "localhost:8080", false),
            (":8080", "localhost:8080", false),
            ("127.0.0.1:80", "127.0.0.1:80", false),
            ("[::1]:80", "[::1]:80", false),
            ("http://db.internal", "db.internal:80", false),
            ("https://db.internal", "https://db.internal:443", true),
            ("https://[::1]/", "https://[::1]:443", true),
            ("https://127.0.0.1:8443/", "https://127.0.0.1:8443", true),
            ("unix:/run/app.sock", "unix:/run/app.sock", false),
            ("unix:///run/app.sock", "unix:/run/app.sock", false),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), written, "{text}");
            assert_eq!(target.wants_upstream_tls(), tls, "{text}");
        }
    }

    #[test]
    fn the_host_is_the_target_or_a_configured_one() {
        for (target, header, host) in [
            ("3000", None, None),
            ("3000", Some("rewrite"), Some("localhost:3000")),
            ("http://app.test", Some("rewrite"), Some("app.test")),
            ("http://[::1]", Some("rewrite"), Some("[::1]")),
            ("[::1]:3000", Some("rewrite"), Some("[::1]:3000")),
            ("unix:/run/app.sock", Some("rewrite"), Some("localhost")),
            ("3000", Some("app.test:81"), Some("app.test:81")),
        ] {
            let destination = Destination {
                host_header: header.map(|text| text.parse().unwrap()),
                ..target.parse::<Target>().unwrap().into()
            };
            assert_eq!(destination.host().as_deref(), host, "{target}");
        }
        for text in ["", "a b", "a\r\nX: y", "https://a", "a:0"] {
            assert!(text.parse::<HostHeader>().is_err(), "{text}");
        }
    }

    #[test]
    fn invalid_targets_are_refused() {
        for text in [
            "",
            "0",
            "65536",
            "host",
            "unix:",
            "https://",
            "host:x",
            "https://a/path",
            "ftp://a:1",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
