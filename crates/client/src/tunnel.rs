//! A tunnel as its owner sees it.

use std::{net::IpAddr, sync::Arc, time::Duration};

use tokio::sync::{mpsc, watch};

use crate::{
    ConnectError, Forwarding, Properties, Refusal, Stream,
    agent::{Owner, forward::serve_raw, shared::Entry},
};

/// A published or private tunnel of an [`Agent`](crate::Agent).
///
/// It lives as long as this value: dropping it closes the tunnel. Streams that were accepted go
/// on until they end themselves.
#[derive(Debug)]
pub struct Tunnel {
    owner: Arc<Owner>,
    entry: Arc<Entry>,
    status: watch::Receiver<Status>,
    streams: Waiting,
}

/// The state of a tunnel. There are these four; their fields may grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was never online yet.
    Connecting,
    /// Visitors reach it.
    Online(Arc<Online>),
    /// It was online, or was tried, and is being brought back.
    #[non_exhaustive]
    Disconnected {
        /// What failed.
        error: Arc<str>,
        /// The wait before the next attempt.
        retry_in: Duration,
    },
    /// It is over; no attempt follows.
    Closed(Closed),
}

/// What is known of a tunnel while it is online.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Online {
    /// The engine's id of the tunnel; a new one after each reconnect.
    pub tunnel_id: String,
    /// The engine's id of the agent.
    pub client_id: String,
    /// The effective properties: defaults, hostname and port are filled in.
    pub properties: Properties,
    /// What a visitor uses: `https://…`, `host:port`, `svc://…`.
    pub forwarding: String,
}

impl Online {
    /// A tunnel that is online, for tests of programs that show one.
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

/// Why a tunnel is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// Its owner closed it.
    Asked,
    /// The engine refused it, or another agent took it over.
    Refused(Refusal),
    /// The engine closed it without a reason.
    ByEngine,
}

/// A stream that begins or ends at a forwarded tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connection {
    /// The engine's id of the stream.
    pub stream_id: String,
    /// The visitor.
    pub source_ip: Option<IpAddr>,
    /// True at the begin, false at the end.
    pub active: bool,
    /// Why it failed, where it did.
    pub error: Option<String>,
}

impl Connection {
    /// A stream that begins.
    pub fn begun(stream_id: impl Into<String>, source_ip: Option<IpAddr>) -> Self {
        Self {
            stream_id: stream_id.into(),
            source_ip,
            active: true,
            error: None,
        }
    }

    /// The same when it ends, for this reason where it failed.
    #[must_use]
    pub fn ended(self, error: Option<String>) -> Self {
        Self {
            active: false,
            error,
            ..self
        }
    }
}

/// Visitors that were taken and not accepted yet. Boxed: the queue keeps room for 32 of them, in
/// each tunnel, whether anybody waits or not.
pub(crate) type Waiting = mpsc::Receiver<Box<Stream>>;

/// Told of each stream of a forwarded tunnel; must not block.
pub(crate) type Observer = Arc<dyn Fn(Connection) + Send + Sync>;

impl Tunnel {
    pub(crate) fn new(owner: Arc<Owner>, entry: Arc<Entry>, streams: Waiting) -> Self {
        let status = entry.subscribe();
        Self {
            owner,
            entry,
            status,
            streams,
        }
    }

    /// Where the tunnel stands, and every change of it.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Waits until the tunnel is online, for the first time or again.
    ///
    /// # Errors
    /// When it is over instead. What a network can cause is no error: the wait goes on.
    ///
    /// # Cancellation
    /// Safe: nothing is lost, the tunnel goes on.
    pub async fn online(&mut self) -> Result<Arc<Online>, ConnectError> {
        loop {
            match &*self.status.borrow_and_update() {
                Status::Online(online) => return Ok(Arc::clone(online)),
                Status::Closed(Closed::Refused(refusal)) => return Err(refusal.clone().into()),
                Status::Closed(_) => return Err(ConnectError::Closed),
                Status::Connecting | Status::Disconnected { .. } => {}
            }
            self.status
                .changed()
                .await
                .map_err(|_gone| ConnectError::Closed)?;
        }
    }

    /// The next visitor; `None` when the tunnel is over.
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

    /// Joins every visitor to a service, from now until the tunnel is over, and says why it ended.
    /// `to` is a [`Target`](crate::Target), a [`Destination`](crate::Destination), or a [`Forwarding`]
    /// with more options.
    ///
    /// A visitor is refused when the service cannot be reached, before any byte is taken from it.
    ///
    /// # Cancellation
    /// Dropping the future leaves the streams that run, and further visitors are still joined to the
    /// service while the tunnel lives; dropping the tunnel ends that.
    pub async fn forward(&mut self, to: impl Into<Forwarding>) -> Closed {
        let forward = self.entry.forward_to(to.into());
        loop {
            tokio::select! {
                () = closed(&mut self.status) => break,
                // Those who waited, and those for whom a place to wait was taken before.
                Some(stream) = self.streams.recv() => {
                    self.owner.spawn(serve_raw(Arc::clone(&forward), *stream));
                }
            }
        }
        match &*self.status.borrow() {
            Status::Closed(closed) => closed.clone(),
            _ => Closed::Asked,
        }
    }

    /// Closes the tunnel and waits until the engine knows, or is gone.
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

/// Returns when the status is, or becomes, closed.
async fn closed(status: &mut watch::Receiver<Status>) {
    // The error means that the agent is gone, and the tunnel with it.
    drop(
        status
            .wait_for(|status| matches!(status, Status::Closed(_)))
            .await,
    );
}

/// Visitors that wait for [`Tunnel::accept`]: as many as a listening socket's backlog usually
/// holds; a program that falls further behind is better off with refusals than with memory.
pub const MAX_WAITING: usize = 128;
