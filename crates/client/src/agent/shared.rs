//! State shared by an agent's handles, its actor and its streams.
//!
//! Handles do not send commands. They change the requested state and wake the actor, which changes
//! the channel to match it. So there is no queue, nothing is lost without a channel, and a
//! reconnect does the same work as the first connect.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{Notify, Semaphore, mpsc, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use transport::{
    lane::Budget,
    permit::{Counter, Permit},
};
use wire::lane::DOWN_LIMIT;

use super::{AgentStatus, forward::Forward, inbound::MAX_PENDING_VISITORS};
use crate::agent::target::ForwardOptions;
use crate::agent::tunnel::{CloseReason, MAX_WAITING, Status, VisitorQueue};
use crate::connect::Connector;
use crate::properties::Protocol;
use crate::{Config, ConnectError, Properties, Refusal, Stream};

/// The state of one agent.
pub(crate) struct AgentState {
    config: Config,
    connector: Connector,
    runtimes: Vec<Handle>,
    /// Number of lanes that each runtime serves.
    lanes: Vec<Arc<Counter>>,
    next_runtime: AtomicUsize,
    status: watch::Sender<AgentStatus>,
    failures: watch::Sender<Failures>,
    round_trip: watch::Sender<Option<Duration>>,
    tunnels: Mutex<BTreeMap<u64, Arc<Entry>>>,
    next_id: AtomicU64,
    /// The requested state has changed.
    changed: Notify,
    routes: Mutex<HashMap<String, Arc<Entry>>>,
    /// A route was added.
    routed: Notify,
    /// Limits the visitors between announcement and first byte.
    pub(crate) pending_visitors: Arc<Semaphore>,
    /// Asks the agent to end: no new streams, and the engine is notified.
    pub(crate) stop: CancellationToken,
    /// Stops everything that still runs.
    pub(crate) kill: CancellationToken,
    /// The tasks that carry streams; they outlive their channel.
    pub(crate) streams: TaskTracker,
}

impl AgentState {
    pub(crate) fn new(config: Config, connector: Connector) -> Self {
        let runtimes = match config.runtimes.as_slice() {
            [] => vec![Handle::current()],
            runtimes => runtimes.to_vec(),
        };
        let lanes = runtimes.iter().map(|_| Arc::default()).collect();
        Self {
            config,
            connector,
            runtimes,
            lanes,
            next_runtime: AtomicUsize::new(0),
            status: watch::Sender::new(AgentStatus::Connecting),
            failures: watch::Sender::default(),
            round_trip: watch::Sender::new(None),
            tunnels: Mutex::default(),
            next_id: AtomicU64::new(1),
            changed: Notify::new(),
            routes: Mutex::default(),
            routed: Notify::new(),
            pending_visitors: Arc::new(Semaphore::new(MAX_PENDING_VISITORS)),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            streams: TaskTracker::new(),
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    pub(crate) fn status(&self) -> watch::Receiver<AgentStatus> {
        self.status.subscribe()
    }

    pub(crate) fn set_status(&self, status: AgentStatus) {
        if !matches!(status, AgentStatus::Online { .. }) {
            self.set_round_trip(None);
        }
        self.status.send_replace(status);
    }

    pub(crate) fn failures(&self) -> watch::Receiver<Failures> {
        self.failures.subscribe()
    }

    /// Counts a failed attempt or a lost channel.
    pub(crate) fn note_failure(&self, error: &ConnectError) {
        self.failures.send_modify(|failures| {
            failures.count = failures.count.saturating_add(1);
            failures.last = Some(error.clone());
        });
    }

    pub(crate) fn round_trip(&self) -> watch::Receiver<Option<Duration>> {
        self.round_trip.subscribe()
    }

    pub(crate) fn set_round_trip(&self, round_trip: Option<Duration>) {
        self.round_trip.send_replace(round_trip);
    }

    /// Runs `work` on the next runtime in turn, until it ends or the agent is killed.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let turn = self.next_runtime.fetch_add(1, Ordering::Relaxed);
        let Some(runtime) = self.runtimes.get(turn % self.runtimes.len().max(1)) else {
            return;
        };
        self.spawn_on(runtime, work);
    }

    /// The same on the runtime with the fewest lanes. The engine has one lane for each of its
    /// cores, and each causes the same load.
    pub(crate) fn spawn_lane(&self, work: impl Future<Output = ()> + Send + 'static) {
        let count = |(_, lanes): &(&Handle, &Arc<Counter>)| lanes.count();
        let fewest = self.runtimes.iter().zip(&self.lanes).min_by_key(count);
        let Some((runtime, lanes)) = fewest else {
            return;
        };
        let counted = Permit::take(lanes);
        self.spawn_on(runtime, async move {
            work.await;
            drop(counted);
        });
    }

    /// The same on the current runtime, which must be one of the agent's.
    pub(crate) fn spawn_here(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_on(&Handle::current(), work);
    }

    fn spawn_on(&self, runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
        let kill = self.kill.clone();
        // Without a box, each wrapping layer would reserve the memory again.
        let work = Box::pin(work);
        let bounded = async move {
            kill.run_until_cancelled_owned(work).await;
        };
        drop(runtime.spawn(self.streams.track_future(bounded)));
    }

    pub(crate) fn add(
        &self,
        wanted: Properties,
        renew: Option<RefreshProperties>,
        preferred_hostname: Option<String>,
    ) -> (Arc<Entry>, VisitorQueue) {
        let (sender, streams) = mpsc::channel(MAX_WAITING);
        let entry = Arc::new(Entry {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            requested: wanted,
            renew,
            assigned_hostname: Mutex::new(preferred_hostname),
            status: watch::Sender::new(Status::Connecting),
            handler: Mutex::new(Handler::Queue(sender)),
            closing: AtomicBool::new(false),
            announced_end: OnceLock::new(),
        });
        if self.stop.is_cancelled() {
            entry.set_status(Status::Closed(CloseReason::Asked));
        } else {
            self.tunnels.lock().insert(entry.id, Arc::clone(&entry));
            self.wake();
        }
        (entry, streams)
    }

    /// Wakes the actor to check the requested state.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    pub(crate) async fn woken(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.tunnels.lock().values().cloned().collect()
    }

    /// Removes a tunnel and notifies its owner of the reason.
    pub(crate) fn finish(&self, entry: &Entry, why: CloseReason) {
        self.tunnels.lock().remove(&entry.id);
        entry.set_status(Status::Closed(why));
    }

    /// Ends every tunnel with the same reason, because the agent has ended.
    pub(crate) fn finish_all(&self, why: &CloseReason) {
        self.routes.lock().clear();
        for entry in self.entries() {
            self.finish(&entry, why.clone());
        }
    }

    pub(crate) fn add_route(&self, tunnel_id: String, entry: Arc<Entry>) {
        self.routes.lock().insert(tunnel_id, entry);
        self.routed.notify_waiters();
    }

    pub(crate) fn remove_route(&self, tunnel_id: &str) {
        self.routes.lock().remove(tunnel_id);
    }

    /// The tunnel of a stream.
    ///
    /// A stream may overtake the response that names its tunnel, because it arrives on another
    /// connection. An unknown id is therefore waited for, for up to [`ROUTE_GRACE`].
    pub(crate) async fn route(&self, tunnel_id: &str) -> Option<Arc<Entry>> {
        let found = || self.routes.lock().get(tunnel_id).cloned();
        if let Some(entry) = found() {
            return Some(entry);
        }
        let wait = async {
            loop {
                // Registered before the lookup, so that an addition in between is not missed.
                let added = self.routed.notified();
                if let Some(entry) = found() {
                    return entry;
                }
                added.await;
            }
        };
        tokio::time::timeout(ROUTE_GRACE, wait).await.ok()
    }
}

/// Failed attempts of an agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures {
    pub(crate) count: u32,
    pub(crate) last: Option<ConnectError>,
}

impl fmt::Debug for AgentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentState")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// One requested tunnel.
pub(crate) struct Entry {
    /// Local id, the same over all reconnects; also the `request_id` on the wire.
    pub(crate) id: u64,
    pub(crate) requested: Properties,
    /// Refreshes expiring properties before each request.
    renew: Option<RefreshProperties>,
    /// The name that the engine drew. The agent requests it again after a reconnect, so that
    /// published addresses stay valid.
    assigned_hostname: Mutex<Option<String>>,
    status: watch::Sender<Status>,
    handler: Mutex<Handler>,
    closing: AtomicBool,
    /// Reason for its end that the engine announced on an earlier channel.
    announced_end: OnceLock<Refusal>,
}

/// Updates the requested properties just before a request.
pub(crate) type RefreshProperties = Arc<dyn Fn(&mut Properties) + Send + Sync>;

/// Receiver of the streams of a tunnel.
#[derive(Clone)]
pub(crate) enum Handler {
    /// [`Tunnel::accept`](crate::Tunnel::accept).
    Queue(mpsc::Sender<Box<Stream>>),
    /// [`Tunnel::forward`](crate::Tunnel::forward).
    Forward(Arc<Forward>),
}

impl Entry {
    pub(crate) fn subscribe(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Sets the status. A closed tunnel stays closed.
    pub(crate) fn set_status(&self, status: Status) {
        self.status.send_if_modified(|current| {
            let changes = !matches!(current, Status::Closed(_)) && *current != status;
            if changes {
                *current = status;
            }
            changes
        });
    }

    pub(crate) fn disconnected(&self, error: &Arc<str>, retry_in: Duration) {
        self.set_status(Status::Disconnected {
            error: Arc::clone(error),
            retry_in,
        });
    }

    /// The properties to request from the engine.
    pub(crate) fn request(&self) -> Properties {
        let mut request = self.requested.clone();
        if request.hostname.is_none() {
            request.hostname.clone_from(&self.assigned_hostname.lock());
        }
        if let Some(renew) = &self.renew {
            renew(&mut request);
        }
        request
    }

    /// Stores the name under which visitors reach the tunnel. A TCP tunnel has a port instead.
    pub(crate) fn store_hostname(&self, granted: &Properties) {
        if granted.protocol != Some(Protocol::Tcp) {
            self.assigned_hostname.lock().clone_from(&granted.hostname);
        }
    }

    /// Forgets the name; true if there was one and the owner has not chosen it.
    pub(crate) fn clear_hostname(&self) -> bool {
        self.assigned_hostname.lock().take().is_some() && self.requested.hostname.is_none()
    }

    /// Budget of its streams on a lane. A published tunnel without a protocol is HTTP.
    pub(crate) fn budget(&self) -> Budget {
        match (&self.requested.protocol, self.requested.publish) {
            (Some(Protocol::Http), _) | (None, None | Some(true)) => Budget::exchanges(DOWN_LIMIT),
            _ => Budget::bytes(),
        }
    }

    pub(crate) fn handler(&self) -> Handler {
        self.handler.lock().clone()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(crate) fn ask_to_close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Closes the tunnel for a reason that an earlier channel received.
    pub(crate) fn close_for(&self, reason: Refusal) {
        // The first reason is kept.
        self.announced_end.set(reason).ok();
        self.ask_to_close();
    }

    /// The reason of an end that was requested here.
    pub(crate) fn close_reason(&self) -> CloseReason {
        let announced = self.announced_end.get().cloned();
        announced.map_or(CloseReason::Asked, CloseReason::Refused)
    }

    /// Forwards every later stream to its destination. The returned value serves the waiting ones.
    pub(crate) fn forward_to(&self, to: ForwardOptions) -> Arc<Forward> {
        let forward = Arc::new(Forward::new(to));
        *self.handler.lock() = Handler::Forward(Arc::clone(&forward));
        forward
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Maximum time that a stream waits for the response that names its tunnel: far longer than the
/// delay between two connections of one path, far shorter than a visitor waits.
const ROUTE_GRACE: Duration = Duration::from_secs(1);
