//! The WebTTY server: commands of this host for clients that come over streams.
//!
//! [`Server`] is given connections ([`Server::spawn`]), from a listener or from a tunnel. Each
//! becomes a task: with [`Transport::Plain`] messages begin at once, with [`Transport::WebSocket`]
//! it speaks HTTP first, and files may be beside the terminals. What a session is, is
//! `tty::session`'s; what it runs, `pty`'s. A session outlives its connection where its client knows
//! how to come back.

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

/// What a server is told once, at its start.
#[derive(Debug)]
pub struct Settings {
    /// What clients may start.
    pub policy: Policy,
    /// How many sessions there may be, and how long they last.
    pub limits: Limits,
    /// End-to-end encryption: with it, sessions are sealed and there are no others.
    pub seal: Option<Seal>,
    /// Who may come over HTTP.
    pub web: Web,
}

/// What HTTP asks of visitors, before a WebSocket or a file.
#[derive(Debug, Default)]
pub struct Web {
    /// What they have to show; `None` where somebody else has asked already.
    pub token: Option<AuthToken>,
    /// The pages whose scripts may come.
    pub origins: Origins,
    /// The files beside the terminals.
    pub files: Option<Files>,
}

/// How many sessions there may be, and how long they last.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How many at once, those included whose client is away. One whose command has ended is none.
    pub sessions: usize,
    /// How long a command outlives its connection.
    pub grace: Duration,
    /// How long nothing may be typed or shown.
    pub idle: Option<Duration>,
    /// How long a session may last.
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

/// What is told about sessions, for logs and lines. It must not block.
pub type Observer = Arc<dyn Fn(Event<'_>) + Send + Sync>;

/// A session that began or ended.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Its command runs.
    Opened {
        /// Names it.
        session_id: &'a str,
        /// Where its client comes from, where that is known.
        source: Option<IpAddr>,
        /// The account, where it is another than this program's.
        account: Option<&'a str>,
        /// Whether it has a terminal.
        has_terminal: bool,
    },
    /// It is over.
    Closed {
        /// Names it.
        session_id: &'a str,
        /// The exit code, 128 and the signal's number where one ended it; `None` where its end was
        /// not waited for.
        exit_code: Option<i32>,
        /// Why it ended, where that is known.
        reason: Option<TerminationReason>,
        /// How long it was.
        duration: Duration,
    },
}

/// A server of terminals. Clones are handles of the same one.
#[derive(Clone)]
pub struct Server {
    shared: Arc<ServerState>,
}

/// What its connections share.
pub(crate) struct ServerState {
    policy: Policy,
    limits: Limits,
    seal: Option<Seal>,
    web: Web,
    observer: Observer,
    registry: Registry,
    sessions: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    /// No more sessions, and those that there are end.
    drain: CancellationToken,
    /// Everything ends at once.
    kill: CancellationToken,
    tasks: TaskTracker,
    runtimes: Vec<Handle>,
    turn: AtomicUsize,
}

impl Server {
    /// A server whose connections live on these runtimes, in turn; none means the current one. They
    /// must outlive it.
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
                connections: Arc::new(Semaphore::new(sessions + SPARE)),
                drain: CancellationToken::new(),
                kill: CancellationToken::new(),
                tasks: TaskTracker::new(),
                runtimes,
                turn: AtomicUsize::new(0),
            }),
        }
    }

    /// Serves a connection, on a task of its own. One too many is dropped.
    pub fn spawn(
        &self,
        io: impl transport::Stream + 'static,
        speaks: Transport,
        from: Option<IpAddr>,
    ) {
        self.spawn_with(async move { Some(io) }, speaks, from);
    }

    /// The same for one that is made on the runtime that it will live on.
    pub fn spawn_with<I: transport::Stream + 'static>(
        &self,
        io: impl Future<Output = Option<I>> + Send + 'static,
        speaks: Transport,
        from: Option<IpAddr>,
    ) {
        let shared = Arc::clone(&self.shared);
        let Ok(permit) = Arc::clone(&shared.connections).try_acquire_owned() else {
            tracing::warn!("more connections than there may be: one is dropped");
            return;
        };
        let serving = async move {
            let kill = shared.kill.clone();
            let Some(Some(io)) = kill.run_until_cancelled(io).await else {
                return;
            };
            let io: Io = Box::new(io);
            match speaks {
                Transport::Plain => shared.plain(io, permit, from).await,
                Transport::WebSocket => http::serve(shared, io, permit, from).await,
            }
        };
        self.shared.spawn(Box::pin(serving));
    }

    /// Ends all sessions, each as it deserves, and waits for that. No more begin.
    pub async fn drain(&self) {
        self.shared.drain.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Ends everything at once; [`drain`](Self::drain) then returns soon.
    pub fn kill(&self) {
        self.shared.drain.cancel();
        self.shared.kill.cancel();
    }

    /// How many sessions there are.
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
            if carrier.send(&Kind::error(GOES_DOWN)).is_ok() {
                carrier.finish().await;
            }
            return;
        }
        Session::new(self, carrier, from).run().await;
    }

    /// Lets a connection end by itself, on a task that is waited for. Says whether the peer hung up
    /// after it had everything.
    fn finish(&self, carrier: Carrier) -> oneshot::Receiver<bool> {
        let kill = self.kill.clone();
        let (tell, told) = oneshot::channel();
        self.spawn_here(Box::pin(async move {
            let is_closed = kill.run_until_cancelled(carrier.finish()).await;
            // Whoever has ended meanwhile does not ask.
            tell.send(is_closed.unwrap_or_default()).unwrap_or_default();
        }));
        told
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        if let Some(runtime) = self.runtimes.get(turn % self.runtimes.len().max(1)) {
            drop(runtime.spawn(self.tasks.track_future(work)));
        }
    }

    /// On the current runtime, on which its connection lives.
    fn spawn_here(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(self.tasks.track_future(work)));
    }
}

/// `N` random bytes; `None` where the system gives none.
fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// Names a session in logs.
fn session_id() -> String {
    let bytes: [u8; 10] = random().unwrap_or_default();
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    let digits = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xF)]);
    "tty_".chars().chain(digits).collect()
}

/// What a client hears that comes too late.
const GOES_DOWN: &str = "the server goes down";

/// Connections beside those of sessions: of clients that have not said what they want, that come
/// back, that read files, or that are about to hang up.
const SPARE: usize = 256;
