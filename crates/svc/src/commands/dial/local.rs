//! Local addresses that serve tunnels.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use futures_util::future::select_all;
use terminal::private;
use tokio::net::{TcpListener, lookup_host};
use transport::{
    Stream,
    unix::{UnixListener, UnixStream},
};

use crate::failure::Failure;

/// A local address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LocalAddress {
    /// `host:port`.
    Tcp(String),
    /// A socket in the file system, accessible only to its owner.
    Unix(PathBuf),
}

impl FromStr for LocalAddress {
    type Err = String;

    /// Parses `host:port`, a port of this machine, or `unix:` and a path.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" => Err(format!("`{text}` has no path")),
                path => Ok(Self::Unix(path.into())),
            };
        }
        if text.parse::<u16>().is_ok() {
            return Ok(Self::Tcp(format!("127.0.0.1:{text}")));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(text.to_owned()))
            }
            _ => Err(format!("`{text}` is not PORT, HOST:PORT or unix:PATH")),
        }
    }
}

impl fmt::Display for LocalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub(super) enum Listener {
    /// One socket for each address of the host.
    Tcp(Vec<TcpListener>),
    Unix {
        listener: UnixListener,
        path: PathBuf,
    },
}

impl Listener {
    pub(super) async fn bind(local: &LocalAddress) -> Result<Self, Failure> {
        let failed = |error| Failure::from_error(&format!("cannot listen on {local}"), error);
        match local {
            LocalAddress::Tcp(address) => {
                let listeners = bind_all(address).await.map_err(|error| {
                    Failure::of_bind(&format!("cannot listen on {local}"), &error)
                })?;
                Ok(Self::Tcp(listeners))
            }
            LocalAddress::Unix(path) => {
                // A socket file that a dead process left behind is removed. A live process keeps
                // its socket.
                if UnixStream::connect(path)
                    .await
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
                {
                    std::fs::remove_file(path).map_err(failed)?;
                }
                let listener = UnixListener::bind(path)
                    .map_err(|error| failed(error).hint("does the file exist already?"))?;
                private::restrict(path).map_err(failed)?;
                let path = path.clone();
                Ok(Self::Unix { listener, path })
            }
        }
    }

    /// The bound addresses, including the chosen port.
    pub(super) fn addresses(&self) -> io::Result<Vec<String>> {
        match self {
            Self::Tcp(listeners) => listeners
                .iter()
                .map(|listener| Ok(listener.local_addr()?.to_string()))
                .collect(),
            Self::Unix { path, .. } => Ok(vec![format!("unix:{}", path.display())]),
        }
    }

    /// The next connection. Cancel safe.
    pub(super) async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Tcp(listeners) => {
                let accepting = listeners.iter().map(|listener| Box::pin(listener.accept()));
                // At least one socket is bound.
                let (accepted, _, _) = select_all(accepting).await;
                let (stream, _peer) = accepted?;
                // Best effort: without this option, small messages are late but not wrong.
                drop(stream.set_nodelay(true));
                Ok(Box::new(stream))
            }
            Self::Unix { listener, .. } => {
                let (stream, _peer) = listener.accept().await?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// Binds every address of the host. Programs that connect to `localhost` try both address families,
/// and some try only one.
///
/// A family that this machine does not have is left out.
async fn bind_all(address: &str) -> io::Result<Vec<TcpListener>> {
    let mut addresses: Vec<SocketAddr> = match address.rsplit_once(':') {
        // Not every resolver has both addresses (RFC 6761 section 6.3).
        Some((host, port)) if host.eq_ignore_ascii_case("localhost") => {
            let port: u16 = port.parse().map_err(io::Error::other)?;
            let both: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            both.map(|ip| SocketAddr::new(ip, port)).to_vec()
        }
        _ => lookup_host(address).await?.collect(),
    };
    addresses.dedup();
    for _ in 0..PORT_ATTEMPTS {
        match bind_each(&addresses).await {
            // The system chose a port that is in use with another address.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_any_port(&addresses) => {}
            bound => return bound,
        }
    }
    bind_each(&addresses).await
}

async fn bind_each(addresses: &[SocketAddr]) -> io::Result<Vec<TcpListener>> {
    let mut bound: Vec<TcpListener> = Vec::with_capacity(addresses.len());
    let mut absent = None;
    for address in addresses {
        let mut address = *address;
        if let (Some(first), 0) = (bound.first(), address.port()) {
            address.set_port(first.local_addr()?.port());
        }
        match TcpListener::bind(address).await {
            Ok(listener) => bound.push(listener),
            Err(error) if is_absent(&error) => absent = Some(error),
            Err(error) => return Err(error),
        }
    }
    match absent {
        Some(error) if bound.is_empty() => Err(error),
        _ if bound.is_empty() => Err(io::ErrorKind::NotFound.into()),
        _ => Ok(bound),
    }
}

fn is_any_port(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|address| address.port() == 0)
}

/// True if this machine does not have the address or its family.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(EAFNOSUPPORT)
}

/// Attempts to find a port that is free with every address of a host.
const PORT_ATTEMPTS: u32 = 8;

/// The address family is not supported (Linux; other systems report that the address is not
/// available).
const EAFNOSUPPORT: i32 = 97;

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix { path, .. } = self {
            // A file that remains is removed by the next process.
            drop(std::fs::remove_file(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_address_may_be_a_port_alone() {
        for (text, local) in [
            ("15432", "127.0.0.1:15432"),
            ("[::1]:0", "[::1]:0"),
            ("localhost:1", "localhost:1"),
            ("unix:/run/x", "unix:/run/x"),
            ("unix:///run/x", "unix:/run/x"),
            ("unix:x", "unix:x"),
        ] {
            assert_eq!(text.parse::<LocalAddress>().unwrap().to_string(), local);
        }
        for text in ["", "localhost", ":1", "a:b", "99999", "unix:", "unix://"] {
            assert!(text.parse::<LocalAddress>().is_err(), "{text}");
        }
    }
}
