//! Local addresses that serve tunnels.

use std::{fmt, io, path::PathBuf, str::FromStr};

use terminal::private;
use tokio::net::TcpListener;
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
    Tcp(TcpListener),
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
                let listener = TcpListener::bind(address).await.map_err(|error| {
                    failed(error)
                        .named("port_in_use")
                        .hint("port 0 selects a free one")
                })?;
                Ok(Self::Tcp(listener))
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

    /// The bound address, including the chosen port.
    pub(super) fn address(&self) -> io::Result<String> {
        match self {
            Self::Tcp(listener) => Ok(listener.local_addr()?.to_string()),
            Self::Unix { path, .. } => Ok(format!("unix:{}", path.display())),
        }
    }

    /// The next connection. Cancel safe.
    pub(super) async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _peer) = listener.accept().await?;
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
