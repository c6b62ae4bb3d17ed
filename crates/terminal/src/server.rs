//! The WebTTY server: commands of this host for clients that come over streams.
//!
//! [`Server`] takes connections from a listener or a tunnel ([`Server::spawn`]) and serves each in
//! a task. With [`Transport::Plain`] messages start immediately. With [`Transport::WebSocket`] a
//! connection starts with HTTP, which may also serve files. `tty::session` defines the session, and
//! `pty` runs its command. A session outlives its connection if its client supports resuming.

mod carrier;
mod files;
mod http;
mod launch;
mod registry;
mod sealing;
mod session;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tty::message::{Kind, TerminationReason};

pub use files::{Files, FilesError};
pub use http::{AuthToken, Origins};
pub use launch::{Execution, Policy};
pub use pty::{Account, AccountError};
pub use sealing::Seal;

pub use crate::inventory::Transport;

use carrier::{Carrier, Io};
use registry::Registry;
use session::Session;

/// Settings of a server, which are fixed at its start.
#[derive(Debug)]
pub struct Settings {
    /// Commands that clients may start.
    pub policy: Policy,
    /// Maximum number and duration of sessions.
    pub limits: Limits,
    /// End-to-end encryption. If present, all sessions are sealed.
    pub seal: Option<Seal>,
    /// Access over HTTP.
    pub web: Web,
}

/// Requirements for HTTP requests, before a WebSocket or a file is served.
#[derive(Debug, Default)]
pub struct Web {
    /// Token that clients must present; `None` if another component has authenticated them.
    pub token: Option<AuthToken>,
    /// Web pages whose scripts may connect.
    pub origins: Origins,
    /// Files that are served in addition to terminals.
    pub files: Option<Files>,
}

/// Maximum number and duration of sessions.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum of concurrent sessions, including those of disconnected clients. A session whose
    /// command has ended does not count.
    pub sessions: usize,
    /// Time for which a command outlives its connection.
    pub grace: Duration,
    /// Maximum time without input and output.
    pub idle: Option<Duration>,
    /// Maximum duration of a session.
    pub duration: Option<Duration>,
}

impl Limits {
    fn settings(&self, session_id: String) -> tty::session::Settings {
        tty::session::Settings {
            session_id,
            grace: self.grace,
            idle: self.idle,
            duration: self.duration,
        }
    }
}

/// Receives session events, for logs and messages. It must not block.
pub type Observer = Arc<dyn Fn(Event<'_>) + Send + Sync>;

/// The start or the end of a session.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The command runs.
    Opened {
        /// Id of the session.
        session_id: &'a str,
        /// Address of the client, if known.
        source: Option<IpAddr>,
        /// The account, if it differs from this program's.
        account: Option<&'a str>,
        /// True if the command has a terminal.
        has_terminal: bool,
    },
    /// The session is over.
    Closed {
        /// Id of the session.
        session_id: &'a str,
        /// The exit code, or 128 plus the signal's number if a signal ended the command; `None` if
        /// the server did not wait for its end.
        exit_code: Option<i32>,
        /// The reason of the end, if known.
        reason: Option<TerminationReason>,
        /// Duration of the session.
        duration: Duration,
    },
}

/// A terminal server. Clones share the same server.
#[derive(Clone)]
pub struct Server {
    shared: Arc<ServerState>,
}

/// State that all connections share.
pub(crate) struct ServerState {
    policy: Policy,
    limits: Limits,
    seal: Option<Seal>,
    web: Web,
    observer: Observer,
    registry: Registry,
    sessions: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    /// Cancelled to stop new sessions and end the existing ones.
    drain: CancellationToken,
    /// Cancelled to end everything immediately.
    kill: CancellationToken,
    tasks: TaskTracker,
    runtimes: Vec<Handle>,
    next_runtime: AtomicUsize,
}

impl Server {
    /// Creates a server whose connections are distributed over these runtimes; with none they use
    /// the current one. The runtimes must outlive the server.
    pub fn new(settings: Settings, observer: Observer, runtimes: &[Handle]) -> Self {
        let Settings {
            policy,
            limits,
            seal,
            web,
        } = settings;
        let runtimes = match runtimes {
            [] => vec![Handle::current()],
            runtimes => runtimes.to_vec(),
        };
        let sessions = limits.sessions.min(Semaphore::MAX_PERMITS / 2);
        Self {
            shared: Arc::new(ServerState {
                policy,
                limits,
                seal,
                web,
                observer,
                registry: Registry::default(),
                sessions: Arc::new(Semaphore::new(sessions)),
                connections: Arc::new(Semaphore::new(sessions + EXTRA_CONNECTIONS)),
                drain: CancellationToken::new(),
                kill: CancellationToken::new(),
                tasks: TaskTracker::new(),
                runtimes,
                next_runtime: AtomicUsize::new(0),
            }),
        }
    }

    /// Serves a connection in its own task. A connection beyond the limit is dropped.
    pub fn spawn(
        &self,
        io: impl transport::Stream + 'static,
        transport: Transport,
        from: Option<IpAddr>,
    ) {
        self.spawn_with(async move { Some(io) }, transport, from);
    }

    /// Serves a connection that is created on the runtime on which it will run.
    pub fn spawn_with<I: transport::Stream + 'static>(
        &self,
        io: impl Future<Output = Option<I>> + Send + 'static,
        transport: Transport,
        from: Option<IpAddr>,
    ) {
        let shared = Arc::clone(&self.shared);
        let Ok(permit) = Arc::clone(&shared.connections).try_acquire_owned() else {
            tracing::warn!("too many connections: one is dropped");
            return;
        };
        let serving = async move {
            let kill = shared.kill.clone();
            let Some(Some(io)) = kill.run_until_cancelled(io).await else {
                return;
            };
            let io: Io = Box::new(io);
            match transport {
                Transport::Plain => shared.plain(io, permit, from).await,
                Transport::WebSocket => http::serve(shared, io, permit, from).await,
            }
        };
        self.shared.spawn(Box::pin(serving));
    }

    /// Ends all sessions gracefully, and waits for them. No new sessions start.
    pub async fn drain(&self) {
        self.shared.drain.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Ends everything immediately; [`drain`](Self::drain) then returns soon.
    pub fn kill(&self) {
        self.shared.drain.cancel();
        self.shared.kill.cancel();
    }

    /// Number of sessions.
    pub fn sessions(&self) -> usize {
        let limit = self.shared.limits.sessions.min(Semaphore::MAX_PERMITS / 2);
        limit.saturating_sub(self.shared.sessions.available_permits())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("sessions", &self.sessions())
            .finish_non_exhaustive()
    }
}

impl ServerState {
    async fn plain(self: Arc<Self>, io: Io, permit: OwnedSemaphorePermit, from: Option<IpAddr>) {
        let mut carrier = Carrier::plain(io, permit);
        if self.drain.is_cancelled() {
            if carrier.send(&Kind::error(SHUTTING_DOWN)).is_ok() {
                carrier.finish().await;
            }
            return;
        }
        Session::new(self, carrier, from).run().await;
    }

    /// Closes a connection in a tracked task. The result is true if the peer closed after it had
    /// received everything.
    fn finish(&self, carrier: Carrier) -> oneshot::Receiver<bool> {
        let kill = self.kill.clone();
        let (sender, receiver) = oneshot::channel();
        self.spawn_here(Box::pin(async move {
            let is_closed = kill.run_until_cancelled(carrier.finish()).await;
            // The receiver may be gone.
            sender
                .send(is_closed.unwrap_or_default())
                .unwrap_or_default();
        }));
        receiver
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let turn = self.next_runtime.fetch_add(1, Ordering::Relaxed);
        if let Some(runtime) = self.runtimes.get(turn % self.runtimes.len().max(1)) {
            drop(runtime.spawn(self.tasks.track_future(work)));
        }
    }

    /// Uses the current runtime, on which the connection runs.
    fn spawn_here(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(self.tasks.track_future(work)));
    }
}

/// `N` random bytes; `None` if the system provides none.
fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// A new session id for logs.
fn session_id() -> String {
    let bytes: [u8; 10] = random().unwrap_or_default();
    format!("tty_{}", hex::encode(bytes))
}

/// Error for clients that connect during a shutdown.
const SHUTTING_DOWN: &str = "the server is shutting down";

/// Connections in addition to those of sessions: clients that have not sent an `Open`, that resume,
/// that read files, or that are about to close.
const EXTRA_CONNECTIONS: usize = 256;
