//! Notifications to a supervisor: systemd's notify protocol (`sd_notify(3)`), which others support
//! as well.
//!
//! A message is one datagram of `KEY=value` lines to the socket that `NOTIFY_SOCKET` names, a path
//! or, with the prefix `@`, an abstract name. Without the variable nothing is sent. The protocol is
//! a dozen lines; existing crates read the environment of the process themselves, which only the
//! binary does here.

use std::io;
use std::time::Duration;

use self::socket::{Socket, since_the_start};

/// Start of the names of sockets that a process of this program has given to its supervisor. Other
/// names are those of the operator.
pub const STORE_PREFIX: &str = "svc-";

/// The supervisor that started the process.
#[derive(Debug)]
pub struct Supervisor {
    socket: Option<Socket>,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// No supervisor.
    pub fn none() -> Self {
        Self {
            socket: None,
            watchdog: None,
        }
    }

    /// The supervisor from the environment: `NOTIFY_SOCKET`, and for a watchdog `WATCHDOG_USEC` and
    /// `WATCHDOG_PID`. `pid` is this process: variables that were inherited from a supervised
    /// parent are ignored.
    ///
    /// # Errors
    /// The socket is configured and cannot be used. The supervisor would consider the process dead
    /// after a while.
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
            return Ok(Self::none());
        };
        let is_watched = watched.is_none_or(|watched| watched == pid.to_string());
        Ok(Self {
            socket: Some(Socket::connect(&name)?),
            watchdog: period.filter(|_| is_watched).map(Duration::from_micros),
        })
    }

    /// Reports that the process serves, or serves again after [`Supervisor::reloading`].
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports that the configuration is being reloaded.
    pub fn reloading(&self) {
        // The time identifies the reload that the next READY completes.
        let now = since_the_start().as_micros();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    /// Reports that the drain has started.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Reports that another process, which this one has started, is the main process now, and that
    /// it is ready. Later messages of this process are ignored.
    pub fn replaced_by(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}\nREADY=1"));
    }

    /// Keeps sockets open beyond the end of the process: its supervisor passes them to the next one
    /// (`FileDescriptorStoreMax=`). Sockets that it has already are ignored. `name` is shown by the
    /// supervisor, after [`STORE_PREFIX`].
    #[cfg(unix)]
    pub fn keep_open(&self, name: &str, sockets: &[std::os::fd::BorrowedFd<'_>]) {
        let Some(socket) = &self.socket else { return };
        let message = format!("FDSTORE=1\nFDNAME={STORE_PREFIX}{name}");
        for part in sockets.chunks(crate::descriptors::MAX_DESCRIPTORS) {
            if let Err(error) = socket.send_with(message.as_bytes(), part) {
                tracing::debug!(%error, "the supervisor could not be given a socket");
            }
        }
    }

    /// Closes the sockets with a full name that the supervisor keeps.
    pub fn forget(&self, full_name: &str) {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={full_name}"));
    }

    /// Reports the status of the process, in one line for operators.
    pub fn status(&self, text: &str) {
        let line: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        self.send(&format!("STATUS={line}"));
    }

    /// The required interval of [`Supervisor::send_watchdog_beat`]; `None`: none required. It is half of the
    /// watchdog's time-out, as `sd_watchdog_enabled(3)` recommends.
    pub fn beat_interval(&self) -> Option<Duration> {
        self.watchdog
            .map(|after| (after / 2).max(Duration::from_millis(1)))
    }

    /// Reports that the process is alive. Call it from code that would hang, not from a separate
    /// thread.
    pub fn send_watchdog_beat(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(message.as_bytes()) {
            tracing::debug!(%error, "the supervisor could not be notified");
        }
    }
}

#[cfg(unix)]
mod socket {
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::path::Path;
    use std::time::Duration;

    use nix::time::{ClockId, clock_gettime};

    /// The socket of the supervisor.
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
            // A supervisor that does not read must not block the process.
            socket.set_write_timeout(Some(WAIT_LIMIT))?;
            Ok(Self(socket))
        }

        pub(super) fn send(&self, message: &[u8]) -> io::Result<usize> {
            self.0.send(message)
        }

        /// Sends copies of descriptors with a message.
        pub(super) fn send_with(
            &self,
            message: &[u8],
            descriptors: &[BorrowedFd<'_>],
        ) -> io::Result<usize> {
            let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
            crate::descriptors::send_once(self.0.as_raw_fd(), message, &numbers)
        }
    }

    /// The system's monotonic clock.
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
            "abstract sockets are only supported on Linux",
        ))
    }

    /// Maximum wait for space in the socket's queue. Losing a message only costs a status line, or
    /// one of several watchdog beats.
    const WAIT_LIMIT: Duration = Duration::from_millis(200);
}

/// Systems whose supervisors do not support this protocol.
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
                "NOTIFY_SOCKET is set, but this system does not support such sockets",
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
