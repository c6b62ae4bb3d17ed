//! Proxies for connections to engines: HTTP `CONNECT` (RFC 9110 section 9.3.6) and SOCKS5 (RFC
//! 1928).
//!
//! The proxy resolves the name of the engine. The connection through it is encrypted end to end, so
//! the proxy sees only the name and the port. Addresses of this machine never use a proxy.

mod exceptions;
mod fault;
mod http_connect;
mod login;
mod socks5;

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use tokio::time::timeout;
use transport::Socket;

use self::fault::ProxySyntax;
pub use self::fault::{ParseProxyError, ProxyFault, ProxyRefusal};
use self::{
    exceptions::{Exceptions, is_this_machine},
    login::ProxyLogin,
};
use crate::{
    HostPort,
    tcp::{DialError, RESOLVE, dial_first},
};

/// The proxies of a client, and the addresses that are reached without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies(Option<Arc<Rules>>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Rules {
    /// For connections with TLS, which all connections to engines have.
    tls: Setting,
    /// For connections without TLS.
    plain: Setting,
    exceptions: Exceptions,
}

/// A setting that cannot be used is an error when an address needs it, because other addresses do
/// not use a proxy.
type Setting = Option<Result<Proxy, ParseProxyError>>;

/// The way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// Without a proxy.
    Direct(DirectReason),
    /// Through this proxy.
    Proxy(&'a Proxy),
}

/// Reason why an address is reached without a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectReason {
    /// There is no proxy.
    Unset,
    /// The address is a loopback address, or a name under `localhost`.
    ThisMachine,
    /// The address is an exception (`NO_PROXY`).
    Exception,
}

impl Proxies {
    /// Uses one proxy for every address that is not an exception.
    pub fn new(proxy: Proxy) -> Self {
        Self::of(Rules {
            tls: Some(Ok(proxy.clone())),
            plain: Some(Ok(proxy)),
            exceptions: Exceptions::default(),
        })
    }

    /// Reads `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, and `http_proxy` for connections without
    /// TLS. A name in lower case takes precedence, and an empty value counts as unset.
    ///
    /// `HTTP_PROXY` is ignored, because a CGI program gets it from a visitor's header `Proxy`.
    ///
    /// ```
    /// use svc_client::proxy::Proxies;
    ///
    /// let proxies = Proxies::from_environment(|name| std::env::var(name).ok());
    /// ```
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let read = |names: &[&'static str]| {
            names.iter().copied().find_map(|name| {
                let value = variable(name).filter(|value| !value.trim().is_empty())?;
                Some((name, value))
            })
        };
        let setting = |names: &[&'static str]| -> Setting {
            let (name, value) = read(names).or_else(|| read(&["all_proxy", "ALL_PROXY"]))?;
            let proxy: Result<Proxy, ParseProxyError> = value.trim().parse();
            Some(match proxy {
                Ok(proxy) => Ok(Proxy {
                    variable: Some(name),
                    ..proxy
                }),
                Err(error) => Err(ParseProxyError {
                    variable: Some(name),
                    ..error
                }),
            })
        };
        let rules = Rules {
            tls: setting(&["https_proxy", "HTTPS_PROXY"]),
            plain: setting(&["http_proxy"]),
            exceptions: Exceptions::default(),
        };
        if rules.tls.is_none() && rules.plain.is_none() {
            return Self::default();
        }
        let exceptions = read(&["no_proxy", "NO_PROXY"]);
        Self::of(rules).with_exceptions(&exceptions.map(|(_, list)| list).unwrap_or_default())
    }

    /// Sets the addresses that are reached without a proxy, in the form of `NO_PROXY`: names (with
    /// the names under them), addresses and networks, separated by commas or white space. `*` is
    /// every address. An entry may end with a port.
    #[must_use]
    pub fn with_exceptions(self, list: &str) -> Self {
        let Some(rules) = self.0 else {
            return self;
        };
        Self::of(Rules {
            tls: rules.tls.clone(),
            plain: rules.plain.clone(),
            exceptions: Exceptions::parse(list),
        })
    }

    /// The way to an address. `is_tls` is true for a connection with TLS.
    ///
    /// # Errors
    /// The address needs a proxy whose setting cannot be used.
    pub fn route(&self, address: &HostPort, is_tls: bool) -> Result<Route<'_>, ParseProxyError> {
        let Some(rules) = &self.0 else {
            return Ok(Route::Direct(DirectReason::Unset));
        };
        let setting = if is_tls { &rules.tls } else { &rules.plain };
        let Some(setting) = setting else {
            return Ok(Route::Direct(DirectReason::Unset));
        };
        if is_this_machine(address.host()) {
            return Ok(Route::Direct(DirectReason::ThisMachine));
        }
        if rules.exceptions.contains(address) {
            return Ok(Route::Direct(DirectReason::Exception));
        }
        match setting {
            Ok(proxy) => Ok(Route::Proxy(proxy)),
            Err(error) => Err(*error),
        }
    }

    fn of(rules: Rules) -> Self {
        Self(Some(Arc::new(rules)))
    }
}

/// The address of a proxy, its protocol and its login.
///
/// Written `http://[user:password@]host[:port]` or `socks5://…`. The default ports are 80 and 1080.
/// `socks5h://` is the same as `socks5://`: the proxy always resolves names. User name and password
/// are percent-encoded.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    protocol: ProxyProtocol,
    address: HostPort,
    login: Option<ProxyLogin>,
    variable: Option<&'static str>,
}

/// Protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProxyProtocol {
    Http,
    Socks5,
}

impl Proxy {
    /// Its host and port.
    pub fn address(&self) -> &HostPort {
        &self.address
    }

    /// The environment variable that it is from, if any.
    pub fn variable(&self) -> Option<&'static str> {
        self.variable
    }

    /// Its URL with the password, for an HTTP library.
    #[doc(hidden)]
    pub fn expose_url(&self) -> String {
        let login = self.login.as_ref().map(ProxyLogin::expose_encoded);
        let at = if login.is_some() { "@" } else { "" };
        let scheme = match self.protocol {
            ProxyProtocol::Http => "http",
            // In this library the final letter selects the resolution of names by the proxy.
            ProxyProtocol::Socks5 => "socks5h",
        };
        let login = login.unwrap_or_default();
        format!("{scheme}://{login}{at}{}", self.address)
    }

    /// Opens a TCP connection to `target` through the proxy.
    ///
    /// Only for the crates of this project.
    ///
    /// # Errors
    /// The proxy cannot be reached, or does not connect to the target.
    ///
    /// # Cancellation
    /// Safe: dropping the future closes the connection.
    #[doc(hidden)]
    pub async fn open(&self, target: &HostPort) -> Result<Socket, ProxyFault> {
        let addresses = timeout(RESOLVE, self.address.resolve()).await;
        let addresses = addresses
            .map_err(|_elapsed| ProxyFault::TimedOut)?
            .map_err(|error| ProxyFault::Unresolved(Arc::new(error)))?;
        let (mut stream, peer) = dial_first(&addresses).await.map_err(|error| match error {
            DialError::Network(source) => ProxyFault::Unreachable(Arc::new(source)),
            DialError::TimedOut => ProxyFault::TimedOut,
        })?;
        let opening = async {
            match self.protocol {
                ProxyProtocol::Http => {
                    http_connect::open(&mut stream, target, self.login.as_ref()).await
                }
                ProxyProtocol::Socks5 => {
                    socks5::open(&mut stream, target, self.login.as_ref()).await
                }
            }
        };
        timeout(RESPONSE_TIMEOUT, opening)
            .await
            .map_err(|_elapsed| ProxyFault::TimedOut)??;
        Ok(Socket::new(stream, peer))
    }
}

impl FromStr for Proxy {
    type Err = ParseProxyError;

    fn from_str(text: &str) -> Result<Self, ParseProxyError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let (protocol, default_port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (ProxyProtocol::Http, HTTP_PORT),
            "socks5" | "socks5h" => (ProxyProtocol::Socks5, SOCKS_PORT),
            _ => return Err(ParseProxyError::new(ProxySyntax::Scheme)),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, authority) = match rest.rsplit_once('@') {
            Some((login, authority)) => (Some(ProxyLogin::parse(login)?), authority),
            None => (None, rest),
        };
        let malformed = ParseProxyError::new(ProxySyntax::Address);
        if authority.contains('/') {
            return Err(malformed);
        }
        let (_, after_brackets) = authority.rsplit_once(']').unwrap_or(("", authority));
        let address: Result<HostPort, _> = if after_brackets.contains(':') {
            authority.parse()
        } else {
            format!("{authority}:{default_port}").parse()
        };
        Ok(Self {
            protocol,
            address: address.map_err(|_invalid| malformed)?,
            login,
            variable: None,
        })
    }
}

/// Without the login.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            ProxyProtocol::Http => "http",
            ProxyProtocol::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}", self.address)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// The usual port of an HTTP URL.
const HTTP_PORT: u16 = 80;

/// RFC 1928 section 3.
const SOCKS_PORT: u16 = 1080;

/// Time for all responses of the proxy. It resolves the name of the engine and connects to it,
/// which takes at most 15 s without a proxy.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests;
