//! A tunnel, as its owner uses it.

use std::{net::IpAddr, sync::Arc, time::Duration};

use tokio::sync::{mpsc, watch};

use crate::{
    ConnectError, ForwardOptions, Properties, Refusal, Stream,
    agent::{Owner, forward::serve_raw, shared::Entry},
};

/// A published or private tunnel of an [`Agent`](crate::Agent).
///
/// Dropping this value closes the tunnel. Accepted streams continue until they end.
#[derive(Debug)]
pub struct Tunnel {
    owner: Arc<Owner>,
    entry: Arc<Entry>,
    status: watch::Receiver<Status>,
    streams: VisitorQueue,
}

/// The state of a tunnel. There are always these four states, but their fields may grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The tunnel has never been online.
    Connecting,
    /// Visitors can reach the tunnel.
    Online(Arc<Online>),
    /// The tunnel was online, or an attempt failed, and it is being restored.
    #[non_exhaustive]
    Disconnected {
        /// Reason of the failure.
        error: Arc<str>,
        /// Delay before the next attempt.
        retry_in: Duration,
    },
    /// The tunnel is closed; no attempt follows.
    Closed(CloseReason),
}

/// Information about a tunnel while it is online.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Online {
    /// The engine's id of the tunnel; a new one after each reconnect.
    pub tunnel_id: String,
    /// The engine's id of the agent.
    pub client_id: String,
    /// The effective properties: defaults, hostname and port are filled in.
    pub properties: Properties,
    /// The address for visitors: `https://…`, `host:port`, `svc://…`.
    pub forwarding: String,
}

impl Online {
    /// Creates an online tunnel, for tests of programs that display one.
    pub fn new(
        tunnel_id: impl Into<String>,
        client_id: impl Into<String>,
        properties: Properties,
        forwarding: impl Into<String>,
    ) -> Self {
        Self {
            tunnel_id: tunnel_id.into(),
            client_id: client_id.into(),
            properties,
            forwarding: forwarding.into(),
        }
    }
}

/// Reason why a tunnel is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// Its owner closed it.
    Asked,
    /// The engine refused it, another agent took it over, or a caller of its API closed it.
    Refused(Refusal),
    /// The engine closed it without a reason.
    ByEngine,
}

/// A stream that starts or ends at a forwarded tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connection {
    /// The engine's id of the stream.
    pub stream_id: String,
    /// The visitor.
    pub source_ip: Option<IpAddr>,
    /// True at the start, false at the end.
    pub active: bool,
    /// The error of a failed stream.
    pub error: Option<String>,
    /// Bytes from the visitor, once the stream has ended.
    pub bytes_in: u64,
    /// Bytes to the visitor, once the stream has ended.
    pub bytes_out: u64,
}

impl Connection {
    /// Creates a starting stream.
    pub fn begun(stream_id: impl Into<String>, source_ip: Option<IpAddr>) -> Self {
        Self {
            stream_id: stream_id.into(),
            source_ip,
            active: true,
            error: None,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// The same stream at its end, with the error if it failed.
    #[must_use]
    pub fn ended(self, error: Option<String>) -> Self {
        Self {
            active: false,
            error,
            ..self
        }
    }

    /// The same stream with the bytes from and to the visitor.
    #[must_use]
    pub fn with_bytes(self, bytes_in: u64, bytes_out: u64) -> Self {
        Self {
            bytes_in,
            bytes_out,
            ..self
        }
    }
}

/// Visitors that wait to be accepted. Boxed, because the queue of each tunnel always reserves
/// memory for 32 of them.
pub(crate) type VisitorQueue = mpsc::Receiver<Box<Stream>>;

/// Callback for each stream of a forwarded tunnel; must not block.
pub(crate) type Observer = Arc<dyn Fn(Connection) + Send + Sync>;

impl Tunnel {
    pub(crate) fn new(owner: Arc<Owner>, entry: Arc<Entry>, streams: VisitorQueue) -> Self {
        let status = entry.subscribe();
        Self {
            owner,
            entry,
            status,
            streams,
        }
    }

    /// Receiver of the tunnel's state and its changes.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Waits until the tunnel is online, for the first time or again.
    ///
    /// # Errors
    /// The tunnel was closed instead. Network failures are not errors: the wait continues.
    ///
    /// # Cancellation
    /// Safe: nothing is lost, and the tunnel continues.
    pub async fn online(&mut self) -> Result<Arc<Online>, ConnectError> {
        loop {
            match &*self.status.borrow_and_update() {
                Status::Online(online) => return Ok(Arc::clone(online)),
                Status::Closed(CloseReason::Refused(refusal)) => {
                    return Err(refusal.clone().into());
                }
                Status::Closed(_) => return Err(ConnectError::Closed),
                Status::Connecting | Status::Disconnected { .. } => {}
            }
            self.status
                .changed()
                .await
                .map_err(|_gone| ConnectError::Closed)?;
        }
    }

    /// The next visitor; `None` once the tunnel is closed.
    ///
    /// At most [`MAX_WAITING`] visitors wait to be accepted, further ones are refused.
    ///
    /// # Cancellation
    /// Safe: a visitor that was not returned waits for the next call.
    pub async fn accept(&mut self) -> Option<Stream> {
        tokio::select! {
            biased;
            stream = self.streams.recv() => stream.map(|stream| *stream),
            () = closed(&mut self.status) => None,
        }
    }

    /// Forwards every visitor to a service until the tunnel is closed, and returns the reason of
    /// its end. `to` is a [`Target`](crate::Target), a [`Destination`](crate::Destination), or a
    /// [`ForwardOptions`] with more options.
    ///
    /// If the service cannot be reached, the visitor is refused before any byte is read from it.
    ///
    /// # Cancellation
    /// Dropping the future keeps the running streams, and further visitors are still forwarded
    /// while the tunnel exists. Dropping the tunnel ends that.
    pub async fn forward(&mut self, to: impl Into<ForwardOptions>) -> CloseReason {
        let forward = self.entry.forward_to(to.into());
        loop {
            tokio::select! {
                () = closed(&mut self.status) => break,
                // Visitors that were queued before, and those that had already reserved a slot in
                // the queue.
                Some(stream) = self.streams.recv() => {
                    self.owner.spawn(serve_raw(Arc::clone(&forward), *stream));
                }
            }
        }
        match &*self.status.borrow() {
            Status::Closed(closed) => closed.clone(),
            _ => CloseReason::Asked,
        }
    }

    /// Closes the tunnel and waits until the engine has confirmed it or is disconnected.
    ///
    /// # Cancellation
    /// Dropping the future closes the tunnel without the wait.
    pub async fn close(mut self) {
        self.entry.ask_to_close();
        self.owner.wake();
        closed(&mut self.status).await;
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.entry.ask_to_close();
        self.owner.wake();
    }
}

/// Returns when the status is or becomes closed.
async fn closed(status: &mut watch::Receiver<Status>) {
    // The error means that the agent has ended, and the tunnel with it.
    drop(
        status
            .wait_for(|status| matches!(status, Status::Closed(_)))
            .await,
    );
}

/// Maximum number of visitors that wait for [`Tunnel::accept`]: the usual backlog of a listening
/// socket. Refusing further visitors is better for a slow program than using more memory.
pub const MAX_WAITING: usize = 128;
