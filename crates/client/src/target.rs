//! The private service behind a tunnel: how it is written.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

use crate::{
    address::{HostPort, parse_port},
    tap::Tap,
    tunnel::{Connection, Observer},
};

/// Where an agent takes the streams of a tunnel.
///
/// Written `8080` (on this machine), `host:port`, `http://host[:port]`, `https://host[:port]` or
/// `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// A TCP service; bytes are passed as they are.
    Tcp(HostPort),
    /// A TCP service that speaks TLS on this port. The edge does the TLS towards it, end to end
    /// through the tunnel (`upstream_tls`); the agent passes bytes, unless a tap
    /// [opens](crate::tap::Opener) them.
    Tls(HostPort),
    /// A Unix socket on this machine.
    Unix(PathBuf),
}

impl Target {
    /// Whether the edge must speak TLS to the service.
    pub fn wants_upstream_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The `Host` with which a client of the service itself would come (RFC 9110 section 7.2: a
    /// default port is left out). A Unix socket has none of its own.
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
        // `:8080` as other tools write it.
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

/// Where the visitors of a tunnel go, and whether the service is told who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Destination {
    /// The service.
    pub target: Target,
    /// Begin each connection to the service with a PROXY header that names the visitor. Only for
    /// tunnels whose streams are one visitor's each: `tls`, `tcp` and private byte streams. A
    /// connection of an `http` tunnel carries the requests of many, whom `X-Forwarded-For` names.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Let requests name this host instead of the public one. Only for tunnels that carry
    /// HTTP/1.1 to the service without TLS: other bytes are not understood, and break the stream.
    pub host_header: Option<HostHeader>,
}

impl Destination {
    /// The service, which is told nothing of its visitors beside what they send.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            proxy_protocol: None,
            host_header: None,
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

    /// What requests shall have as their `Host`, where that is not the public name.
    pub(crate) fn host(&self) -> Option<String> {
        match self.host_header.as_ref()? {
            HostHeader::Rewrite => Some(self.target.authority()),
            HostHeader::Value(host) => Some(host.clone()),
        }
    }
}

impl From<Target> for Destination {
    fn from(target: Target) -> Self {
        Self::new(target)
    }
}

/// How [`Tunnel::forward`](crate::Tunnel::forward) carries the streams of a tunnel: where to, and who is
/// told of them.
///
/// ```
/// # use svc_client::{Forwarding, Target};
/// # fn forwarding() -> Result<Forwarding, Box<dyn std::error::Error>> {
/// let forwarding = Forwarding::to("3000".parse::<Target>()?)
///     .with_observer(|connection| println!("{connection:?}"));
/// # Ok(forwarding)
/// # }
/// ```
#[derive(Clone)]
pub struct Forwarding {
    pub(crate) to: Destination,
    pub(crate) observer: Option<Observer>,
    pub(crate) tap: Option<Arc<dyn Tap>>,
}

impl Forwarding {
    /// To this service: a [`Target`] or a [`Destination`].
    pub fn to(destination: impl Into<Destination>) -> Self {
        Self {
            to: destination.into(),
            observer: None,
            tap: None,
        }
    }

    /// Has `observer` told of each stream that begins or ends. It must not block.
    #[must_use]
    pub fn with_observer(self, observer: impl Fn(Connection) + Send + Sync + 'static) -> Self {
        Self {
            observer: Some(Arc::new(observer)),
            ..self
        }
    }

    /// Has `tap` look at what passes.
    #[must_use]
    pub fn with_tap(self, tap: Arc<dyn Tap>) -> Self {
        Self {
            tap: Some(tap),
            ..self
        }
    }
}

impl<T: Into<Destination>> From<T> for Forwarding {
    fn from(to: T) -> Self {
        Self::to(to)
    }
}

impl fmt::Debug for Forwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarding")
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

/// The `Host` of requests at a service that refuses the public name, as development servers do.
/// An `Origin` that is the public one follows it, and in answers a `Location` of this host becomes
/// one of the public name.
///
/// Written `rewrite`, or as the host itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostHeader {
    /// The host and the port of the target.
    Rewrite,
    /// This one: a name or an address, with its port where it has one.
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

/// The text is no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a host is `rewrite`, or a name or an address with or without a port")]
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

/// The text names no version of the PROXY protocol.
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

/// The text names no service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a target is a port, `host:port`, `https://host:port` or `unix:/path`")]
pub struct ParseTargetError;

impl From<crate::address::ParseHostPortError> for ParseTargetError {
    fn from(_: crate::address::ParseHostPortError) -> Self {
        Self
    }
}

/// A host as it stands in a URL.
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

/// A bare port is a service on this machine; the name lets it listen on either loopback address.
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
    fn a_host_is_that_of_the_target_or_a_chosen_one() {
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
    fn what_names_no_service_is_refused() {
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
