//! Settings of a cluster, checked.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ownership::Engine;
use zeroize::Zeroizing;

use crate::tls::TlsFiles;

/// Settings of an engine's membership.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The members of the store; at least one.
    pub endpoints: Vec<Endpoint>,
    /// Certificates for `https` endpoints.
    pub tls: Option<TlsFiles>,
    /// The user of the store, if it requires one.
    pub login: Option<Login>,
    /// The beginning of all keys, which ends with `/`. Clusters with different prefixes can use one
    /// store.
    pub prefix: String,
    /// The name, the address and the zone that other engines read.
    pub engine: Engine,
    /// The time for which a name is held for its owner after its engine last had contact.
    pub hold: Duration,
}

/// A member of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// True for `https`.
    pub has_tls: bool,
    /// The host name or the address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// The text is no address of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an endpoint is `https://host:port`, or `http://host:port`")]
pub struct InvalidEndpoint;

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri: http::Uri = text.parse().map_err(|_| InvalidEndpoint)?;
        let has_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(InvalidEndpoint),
        };
        let authority = uri.authority().ok_or(InvalidEndpoint)?;
        let is_bare = uri.path_and_query().is_none_or(|path| path == "/")
            && !authority.as_str().contains('@');
        let host = authority.host();
        let literal = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let port = authority.port_u16().filter(|_| is_bare);
        Ok(Self {
            has_tls,
            host: literal.unwrap_or(host).to_owned(),
            port: port.ok_or(InvalidEndpoint)?,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.has_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

impl Endpoint {
    /// The host and the port, as in a URI.
    pub(crate) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

/// A user of the store.
#[derive(Clone, Debug)]
pub struct Login {
    /// The name.
    pub user: String,
    /// The password.
    pub password: Password,
}

/// A password that is not printed.
#[derive(Clone)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Wraps a password.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_a_scheme_and_a_port() {
        for good in [
            "https://etcd-1.internal:2379",
            "http://127.0.0.1:2379",
            "https://[::1]:2379",
        ] {
            let endpoint: Endpoint = good.parse().unwrap();
            assert_eq!(endpoint.to_string(), good);
            assert_eq!(endpoint.has_tls, good.starts_with("https"));
            assert_eq!(endpoint.port, 2379);
            assert!(!endpoint.host.contains('['));
        }
        let slash: Endpoint = "http://a:1/".parse().unwrap();
        assert_eq!(slash.to_string(), "http://a:1");
        for bad in [
            "",
            "etcd:2379",
            "http://etcd",
            "unix:///run/etcd",
            "http://etcd:2379/path",
            "http://etcd:2379/?a",
            "http://user@etcd:2379",
        ] {
            assert_eq!(bad.parse::<Endpoint>(), Err(InvalidEndpoint), "{bad}");
        }
    }

    #[test]
    fn passwords_are_not_printed() {
        let login = Login {
            user: "svc".to_owned(),
            password: Password::new("hidden".to_owned()),
        };
        assert!(!format!("{login:?}").contains("hidden"));
    }
}
