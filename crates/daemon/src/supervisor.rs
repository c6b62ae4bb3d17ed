//! What a supervisor is told of the process: systemd's notify protocol (`sd_notify(3)`), which
//! others speak as well.
//!
//! A message is one datagram of `KEY=value` lines to the socket that `NOTIFY_SOCKET` names, a path
//! or, with `@` in front, an abstract name. Where nobody asked for it, nothing is sent. The
//! protocol is a dozen lines; the crates that speak it read the environment of the process by
//! themselves, which here the binary alone does.

use std::io;
use std::time::Duration;

use self::socket::{Socket, since_the_start};

/// Whoever started the process and wants to know how it is.
#[derive(Debug)]
pub struct Supervisor {
    socket: Option<Socket>,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// Nobody.
    pub fn nobody() -> Self {
        Self {
            socket: None,
            watchdog: None,
        }
    }

    /// The supervisor that the environment names: `NOTIFY_SOCKET`, and for a watchdog
    /// `WATCHDOG_USEC` and `WATCHDOG_PID`. `pid` is this process: what was inherited from a parent
    /// that is watched itself is not ours to answer.
    ///
    /// # Errors
    /// The socket is named and cannot be used. The process would be taken for dead after a while.
    pub fn of_environment(
        env: impl IntoIterator<Item = (String, String)>,
        pid: u32,
    ) -> io::Result<Self> {
        let mut name = None;
        let mut period = None;
        let mut watched = None;
        for (key, value) in env {
            match key.as_str() {
                "NOTIFY_SOCKET" if !value.is_empty() => name = Some(value),
                "WATCHDOG_USEC" => period = value.parse().ok().filter(|micros| *micros > 0),
                "WATCHDOG_PID" => watched = Some(value),
                _ => {}
            }
        }
        let Some(name) = name else {
            return Ok(Self::nobody());
        };
        let is_watched = watched.is_none_or(|watched| watched == pid.to_string());
        Ok(Self {
            socket: Some(Socket::connect(&name)?),
            watchdog: period.filter(|_| is_watched).map(Duration::from_micros),
        })
    }

    /// The process serves, or serves again after [`Supervisor::reloading`].
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// The configuration is being read again.
    pub fn reloading(&self) {
        // The time tells which reload the next READY is the end of.
        let now = since_the_start().as_micros();
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    /// The drain has begun.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// How the process is, in one line for people.
    pub fn status(&self, text: &str) {
        let line: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        self.tell(&format!("STATUS={line}"));
    }

    /// How often [`Supervisor::beat`] is wanted; `None`: not at all. It is half of the time after
    /// which the process is taken for dead, as `sd_watchdog_enabled(3)` recommends.
    pub fn beat_every(&self) -> Option<Duration> {
        self.watchdog
            .map(|after| (after / 2).max(Duration::from_millis(1)))
    }

    /// The process is alive. To be called by what would hang, not by a thread of its own.
    pub fn beat(&self) {
        self.tell("WATCHDOG=1");
    }

    fn tell(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(message.as_bytes()) {
            tracing::debug!(%error, "the supervisor is not told");
        }
    }
}

#[cfg(unix)]
mod socket {
    use std::io;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::path::Path;
    use std::time::Duration;

    use nix::time::{ClockId, clock_gettime};

    /// Where the supervisor listens.
    #[derive(Debug)]
    pub(super) struct Socket(UnixDatagram);

    impl Socket {
        pub(super) fn connect(name: &str) -> io::Result<Self> {
            let address = match name.strip_prefix('@') {
                Some(abstract_name) => abstract_address(abstract_name)?,
                None if name.starts_with('/') => SocketAddr::from_pathname(Path::new(name))?,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::Unsupported,
                        format!("NOTIFY_SOCKET is neither a path nor an abstract name: {name}"),
                    ));
                }
            };
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&address)?;
            // A supervisor that does not read must not hold up what it supervises.
            socket.set_write_timeout(Some(PATIENCE))?;
            Ok(Self(socket))
        }

        pub(super) fn send(&self, message: &[u8]) -> io::Result<usize> {
            self.0.send(message)
        }
    }

    /// What the system's monotonic clock says.
    pub(super) fn since_the_start() -> Duration {
        clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
    }

    #[cfg(target_os = "linux")]
    fn abstract_address(name: &str) -> io::Result<SocketAddr> {
        use std::os::linux::net::SocketAddrExt as _;
        SocketAddr::from_abstract_name(name.as_bytes())
    }

    #[cfg(not(target_os = "linux"))]
    fn abstract_address(_name: &str) -> io::Result<SocketAddr> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "abstract sockets are Linux's alone",
        ))
    }

    /// A message waits for room in the socket's queue; one that is lost is a line less in a list,
    /// or a beat of which the next comes in time.
    const PATIENCE: Duration = Duration::from_millis(200);
}

/// Systems whose supervisors do not speak this.
#[cfg(not(unix))]
mod socket {
    use std::io;
    use std::time::Duration;

    #[derive(Debug)]
    pub(super) enum Socket {}

    impl Socket {
        pub(super) fn connect(_name: &str) -> io::Result<Self> {
            Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "NOTIFY_SOCKET is set, and there are no such sockets here",
            ))
        }

        pub(super) fn send(&self, _message: &[u8]) -> io::Result<usize> {
            match *self {}
        }
    }

    pub(super) fn since_the_start() -> Duration {
        Duration::ZERO
    }
}
