//! Listening sockets that the process did not bind itself.
//!
//! They come from systemd (`sd_listen_fds(3)`): from a `.socket` unit, or from the descriptor store,
//! in which a process keeps its sockets open during a restart. Or they come from the process that
//! this one replaces. A listener takes the sockets of its address, whatever their names are.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{SockType, getsockopt, sockopt};

use super::own;
use crate::supervisor::STORE_PREFIX;

/// The first inherited descriptor (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;

/// Maximum number of inherited sockets. It is above the sockets of an engine on the largest machine.
const MAX_SOCKETS: i32 = 8192;

/// Inherited sockets that no listener has taken yet.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    sockets: Vec<Inherited>,
}

#[derive(Debug)]
struct Inherited {
    name: String,
    address: SocketAddr,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

/// Reasons why inherited sockets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// The variables of the supervisor are not valid.
    #[error("LISTEN_FDS is not a number from 0 to {MAX_SOCKETS}: {0}")]
    Variable(String),
    /// A descriptor is not a socket of a supported kind.
    #[error("the inherited socket {name} is neither a TCP listener nor a UDP socket")]
    Kind {
        /// Its name in LISTEN_FDNAMES, or its number.
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
        /// Its name in LISTEN_FDNAMES, or its number.
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
            let socket = own(descriptor);
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
        let (socket, address) = match kind.map_err(|error| failed(error.into()))? {
            SockType::Stream => {
                let is_listening = getsockopt(&socket, sockopt::AcceptConn);
                if !is_listening.map_err(|error| failed(error.into()))? {
                    return Err(failed(io::ErrorKind::InvalidInput.into()));
                }
                let socket = TcpListener::from(socket);
                let address = socket.local_addr().map_err(failed)?;
                (Socket::Tcp(socket), address)
            }
            SockType::Datagram => {
                let socket = UdpSocket::from(socket);
                let address = socket.local_addr().map_err(failed)?;
                (Socket::Udp(socket), address)
            }
            _ => return Err(failed(io::ErrorKind::Unsupported.into())),
        };
        self.sockets.push(Inherited {
            name: name.to_owned(),
            address,
            socket,
        });
        Ok(())
    }

    /// Takes the TCP listeners of an address, non-blocking. Empty if there are none.
    ///
    /// # Errors
    /// The system refuses to change a socket.
    pub fn take_listeners(&mut self, address: SocketAddr) -> io::Result<Vec<TcpListener>> {
        let is_wanted = |socket: &Inherited| {
            socket.address == address && matches!(socket.socket, Socket::Tcp(_))
        };
        let mut taken = Vec::new();
        for inherited in self.sockets.extract_if(.., |socket| is_wanted(socket)) {
            if let Socket::Tcp(listener) = inherited.socket {
                listener.set_nonblocking(true)?;
                taken.push(listener);
            }
        }
        Ok(taken)
    }

    /// Takes the UDP sockets of an address, non-blocking. Empty if there are none.
    ///
    /// # Errors
    /// The system refuses to change a socket.
    pub fn take_udp(&mut self, address: SocketAddr) -> io::Result<Vec<UdpSocket>> {
        let is_wanted = |socket: &Inherited| {
            socket.address == address && matches!(socket.socket, Socket::Udp(_))
        };
        let mut taken = Vec::new();
        for inherited in self.sockets.extract_if(.., |socket| is_wanted(socket)) {
            if let Socket::Udp(socket) = inherited.socket {
                socket.set_nonblocking(true)?;
                taken.push(socket);
            }
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
        for Inherited { name, address, .. } in self.sockets {
            if !name.starts_with(STORE_PREFIX) {
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
    fn a_listener_takes_the_sockets_of_its_address_and_kind() {
        let (listener, address) = listener();
        let copy = listener.try_clone().unwrap();
        let udp = UdpSocket::bind(address).unwrap();
        let mut inherited = InheritedSockets::none();
        inherited.add("a", listener.into()).unwrap();
        inherited.add("b", copy.into()).unwrap();
        inherited.add("c", udp.into()).unwrap();
        let other = SocketAddr::from(([127, 0, 0, 2], address.port()));
        assert!(inherited.take_listeners(other).unwrap().is_empty());
        let taken = inherited.take_listeners(address).unwrap();
        assert_eq!(taken.len(), 2);
        let error = taken[0].accept().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(inherited.take_listeners(address).unwrap().is_empty());
        assert_eq!(inherited.take_udp(address).unwrap().len(), 1);
        assert!(inherited.finish().unwrap().is_empty());
    }

    #[test]
    fn a_socket_of_the_operator_must_be_used_and_a_kept_one_is_closed() {
        let (own, _) = listener();
        let mut inherited = InheritedSockets::none();
        inherited.add("svc-http", own.into()).unwrap();
        assert_eq!(inherited.finish().unwrap(), ["svc-http"]);

        let (theirs, address) = listener();
        let mut inherited = InheritedSockets::none();
        inherited.add("web.socket", theirs.into()).unwrap();
        let error = inherited.finish().unwrap_err().to_string();
        assert!(error.contains("web.socket"), "{error}");
        assert!(error.contains(&address.to_string()), "{error}");
    }

    #[test]
    fn only_sockets_of_the_internet_are_accepted() {
        let (one, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut inherited = InheritedSockets::none();
        assert!(inherited.add("unix", one.into()).is_err());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(inherited.add("file", file.into()).is_err());
    }
}
