//! Listening sockets that the process did not bind itself.
//!
//! They come from systemd (`sd_listen_fds(3)`): from a `.socket` unit, or from the descriptor
//! store, in which a process keeps its sockets open during a restart. Or they come from the process
//! that this one replaces. A listener takes the sockets of its address, whatever their names are.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{SockType, getsockopt, sockopt};

use super::take_ownership;
use crate::supervisor::STORE_PREFIX;

/// The first inherited descriptor (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;

/// Maximum number of inherited sockets. It is above the sockets of an engine on the largest
/// machine.
const MAX_SOCKETS: i32 = 8192;

/// Inherited sockets that no listener has taken yet.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    sockets: Vec<InheritedSocket>,
}

#[derive(Debug)]
struct InheritedSocket {
    name: String,
    address: SocketAddr,
    listener: TcpListener,
}

/// Reasons why inherited sockets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// The variables of the supervisor are not valid.
    #[error("LISTEN_FDS is not a number from 0 to 8192: {0}")]
    Variable(String),
    /// A descriptor is not a TCP listener.
    #[error("the inherited socket {name} is not a TCP listener")]
    Kind {
        /// Its name in `LISTEN_FDNAMES`, or its number.
        name: String,
        /// Cause.
        source: io::Error,
    },
    /// No listener of the configuration has this address.
    #[error(
        "the inherited socket {name} is bound to {address}, and no listener of the configuration \
         is: use the same address in both, or remove it from the .socket unit"
    )]
    Unused {
        /// Its name in `LISTEN_FDNAMES`, or its number.
        name: String,
        /// The address to which it is bound.
        address: SocketAddr,
    },
}

impl InheritedSockets {
    /// No sockets.
    pub fn none() -> Self {
        Self::default()
    }

    /// The sockets from systemd: `LISTEN_FDS`, `LISTEN_FDNAMES`, and `LISTEN_PID`. `pid` is this
    /// process: variables for another one are ignored. Only the first call of a process returns
    /// sockets, because it becomes their owner.
    ///
    /// # Errors
    /// The variables are not valid, or a descriptor is not a listening socket.
    pub fn of_environment(
        env: impl IntoIterator<Item = (String, String)>,
        pid: u32,
    ) -> Result<Self, InheritError> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let (mut count, mut target, mut names) = (None, None, String::new());
        for (key, value) in env {
            match key.as_str() {
                "LISTEN_FDS" => count = Some(value),
                "LISTEN_PID" => target = Some(value),
                "LISTEN_FDNAMES" => names = value,
                _ => {}
            }
        }
        let mut inherited = Self::none();
        let (Some(count), Some(target)) = (count, target) else {
            return Ok(inherited);
        };
        if target != pid.to_string() || TAKEN.swap(true, Ordering::AcqRel) {
            return Ok(inherited);
        }
        let number: Option<i32> = count.parse().ok();
        let Some(number) = number.filter(|number| (0..=MAX_SOCKETS).contains(number)) else {
            return Err(InheritError::Variable(count));
        };
        let mut names = names.split(':').filter(|name| !name.is_empty());
        for descriptor in FIRST..FIRST + number {
            let name = names.next();
            let name = name.map_or_else(|| descriptor.to_string(), str::to_owned);
            let socket = take_ownership(descriptor);
            // Programs that this process starts do not inherit them.
            let kept = fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
            kept.map_err(|error| InheritError::Kind {
                name: name.clone(),
                source: error.into(),
            })?;
            inherited.add(&name, socket)?;
        }
        Ok(inherited)
    }

    /// Adds a socket.
    ///
    /// # Errors
    /// It is not a listening socket.
    pub fn add(&mut self, name: &str, socket: OwnedFd) -> Result<(), InheritError> {
        let failed = |source: io::Error| InheritError::Kind {
            name: name.to_owned(),
            source,
        };
        let kind = getsockopt(&socket, sockopt::SockType);
        let is_listening = getsockopt(&socket, sockopt::AcceptConn);
        let kind = kind.map_err(|error| failed(error.into()))?;
        if kind != SockType::Stream || !is_listening.map_err(|error| failed(error.into()))? {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        let listener = TcpListener::from(socket);
        self.sockets.push(InheritedSocket {
            name: name.to_owned(),
            // A Unix socket has no such address.
            address: listener.local_addr().map_err(failed)?,
            listener,
        });
        Ok(())
    }

    /// Takes the TCP listeners of an address, non-blocking. Empty if there are none.
    ///
    /// # Errors
    /// The system refuses to change a socket.
    pub fn take_listeners(&mut self, address: SocketAddr) -> io::Result<Vec<TcpListener>> {
        self.take(|inherited| inherited.address == address)
    }

    /// The same for a listener with a name, as in [`Supervisor::keep_open`]. Port 0 means the port
    /// that the process before this one got.
    ///
    /// # Errors
    /// As [`take_listeners`](Self::take_listeners).
    ///
    /// [`Supervisor::keep_open`]: crate::supervisor::Supervisor::keep_open
    pub fn take_named_listeners(
        &mut self,
        name: &str,
        address: SocketAddr,
    ) -> io::Result<Vec<TcpListener>> {
        if address.port() != 0 {
            return self.take_listeners(address);
        }
        let name = format!("{STORE_PREFIX}{name}");
        self.take(|inherited| inherited.name == name && inherited.address.ip() == address.ip())
    }

    fn take(
        &mut self,
        is_wanted: impl Fn(&InheritedSocket) -> bool,
    ) -> io::Result<Vec<TcpListener>> {
        let mut taken = Vec::new();
        let wanted = self.sockets.extract_if(.., |socket| is_wanted(socket));
        for inherited in wanted {
            inherited.listener.set_nonblocking(true)?;
            taken.push(inherited.listener);
        }
        Ok(taken)
    }

    /// Closes the sockets that a process of this program has kept and that no listener has taken:
    /// their address was removed from the configuration. Returns their names, for
    /// [`Supervisor::forget`](crate::supervisor::Supervisor::forget).
    ///
    /// # Errors
    /// A socket of the operator has been taken by no listener. Its connections would wait forever.
    pub fn finish(self) -> Result<Vec<String>, InheritError> {
        let mut closed = Vec::new();
        for InheritedSocket { name, address, .. } in self.sockets {
            if !is_kept(&name) {
                return Err(InheritError::Unused { name, address });
            }
            tracing::info!(name, %address, "closed a listener that is no longer configured");
            if !closed.contains(&name) {
                closed.push(name);
            }
        }
        Ok(closed)
    }
}

/// True for the name of a socket that a process of this program has given to its supervisor. Those
/// of `.socket` units have the name of the unit, which may have the same prefix.
fn is_kept(name: &str) -> bool {
    name.starts_with(STORE_PREFIX) && !name.ends_with(".socket")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pid: &str, count: &str) -> [(String, String); 2] {
        [
            ("LISTEN_PID".to_owned(), pid.to_owned()),
            ("LISTEN_FDS".to_owned(), count.to_owned()),
        ]
    }

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[test]
    fn sockets_of_another_process_are_ignored() {
        let inherited = InheritedSockets::of_environment(variables("1", "99999"), 2).unwrap();
        assert!(inherited.finish().unwrap().is_empty());
        assert!(InheritedSockets::of_environment([], 2).is_ok());
    }

    #[test]
    fn a_listener_takes_the_sockets_of_its_address() {
        let (listener, address) = listener();
        let copy = listener.try_clone().unwrap();
        let mut inherited = InheritedSockets::none();
        inherited.add("a", listener.into()).unwrap();
        inherited.add("b", copy.into()).unwrap();
        let other = SocketAddr::from(([127, 0, 0, 2], address.port()));
        assert!(inherited.take_listeners(other).unwrap().is_empty());
        let taken = inherited.take_listeners(address).unwrap();
        assert_eq!(taken.len(), 2);
        let error = taken[0].accept().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(inherited.take_listeners(address).unwrap().is_empty());
        assert!(inherited.finish().unwrap().is_empty());
    }

    #[test]
    fn a_socket_of_the_operator_must_be_used_and_a_kept_one_is_closed() {
        let (own, _) = listener();
        let mut inherited = InheritedSockets::none();
        inherited.add("svc-http", own.into()).unwrap();
        assert_eq!(inherited.finish().unwrap(), ["svc-http"]);

        for name in ["web.socket", "svc-engine.socket"] {
            let (theirs, address) = listener();
            let mut inherited = InheritedSockets::none();
            inherited.add(name, theirs.into()).unwrap();
            let error = inherited.finish().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            assert!(error.contains(&address.to_string()), "{error}");
        }
    }

    #[test]
    fn a_listener_on_port_0_takes_the_kept_sockets_of_its_name() {
        let (kept, address) = listener();
        let mut inherited = InheritedSockets::none();
        inherited.add("svc-tls", kept.into()).unwrap();
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let elsewhere = SocketAddr::from(([127, 0, 0, 2], 0));
        let mut take = |name: &str, at| inherited.take_named_listeners(name, at).unwrap();
        assert!(take("http", any_port).is_empty());
        assert!(take("tls", elsewhere).is_empty());
        let taken = take("tls", any_port);
        assert_eq!(taken[0].local_addr().unwrap(), address);
    }

    #[test]
    fn only_tcp_listeners_are_accepted() {
        let (one, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut inherited = InheritedSockets::none();
        assert!(inherited.add("unix", one.into()).is_err());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listening = std::os::unix::net::UnixListener::bind(path).unwrap();
        assert!(inherited.add("listening", listening.into()).is_err());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(inherited.add("file", file.into()).is_err());
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(inherited.add("udp", udp.into()).is_err());
    }
}
