//! One worker: some of the allocations, with their sockets.
//!
//! The kernel delivers all datagrams of one five-tuple to the same worker (`SO_REUSEPORT`), and a
//! connection stays at the worker that accepted it. The lock around the core is therefore only
//! taken by its own thread, except while allocations are checked again.

pub(crate) mod relay;
pub(crate) mod streams;

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use daemon::clock::Clock;
use daemon::connections::Connections;
use parking_lot::Mutex;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::relay::{Reader, RelaySocket, Relays, random_number};
use self::streams::{Origin, PeerStream};
use crate::core::packet::{HEADROOM, TAILROOM};
use crate::core::tcp::{self, ConnectionNumber, CorePosition, JoinedConnections, Unreachable};
use crate::core::{self, Action, AllocationId, Client, Core, Millis, Time, Transport};
use crate::metrics::TurnMetrics;
use crate::outbound::Outbound;

/// State that all workers of a relay share.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) core: Arc<core::SharedState>,
    pub(crate) relays: Relays,
    pub(crate) connections: Arc<Connections>,
    pub(crate) metrics: TurnMetrics,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started: Instant,
    pub(crate) last_connection: AtomicU32,
    /// Cancelled to end everything.
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// All workers, once they have started.
    pub(crate) workers: OnceLock<Box<[Weak<Worker>]>>,
}

impl Server {
    /// The worker with the peer connection that a `ConnectionBind` request names.
    fn worker_of(&self, bytes: &[u8]) -> Option<Arc<Worker>> {
        let workers = self.workers.get()?;
        workers
            .get(tcp::core_of_bind(bytes, workers.len())?)?
            .upgrade()
    }

    /// True if a socket may exchange data with this peer. Of the relay's own addresses only those
    /// of allocations are permitted, in both directions.
    fn permits_peer(&self, transport: Transport, peer: SocketAddr) -> bool {
        !self.core.peers.is_own(peer.ip()) || self.relays.is_relayed(transport, peer)
    }

    pub(crate) fn now(&self) -> Time {
        let at = self.started.elapsed().as_millis();
        Time {
            unix: self.clock.now().as_second(),
            monotonic: Millis(u64::try_from(at).unwrap_or(u64::MAX)),
        }
    }

    /// A unique number for a connection. The numbers repeat after hours.
    pub(crate) fn next_connection(&self) -> u32 {
        loop {
            let number = self.last_connection.fetch_add(1, Ordering::Relaxed);
            if number != 0 {
                return number;
            }
        }
    }
}

/// One worker.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) server: Arc<Server>,
    core: Mutex<Core<RelaySocket, PeerStream>>,
    /// Sockets for datagrams of clients, by the number of the listener.
    udp: Box<[UdpSocket]>,
    streams: Mutex<HashMap<u32, Arc<Outbound>>>,
}

/// Maximum number of datagrams that are read from one socket before other sockets are read.
const MAX_BURST: usize = 64;
/// Maximum size of a datagram.
const MAX_DATAGRAM: usize = 65_535;

thread_local! {
    /// Buffer for received datagrams, with room for headers and padding.
    static BUFFER: RefCell<Box<[u8]>> =
        RefCell::new(vec![0; HEADROOM + MAX_DATAGRAM + TAILROOM].into());
}

impl Worker {
    /// Creates a worker with its sockets. Call it on the worker's runtime.
    ///
    /// # Errors
    /// The sockets cannot be polled.
    pub(crate) fn new(
        server: Arc<Server>,
        position: CorePosition,
        udp: Vec<std::net::UdpSocket>,
    ) -> std::io::Result<Arc<Self>> {
        let udp: std::io::Result<Box<[UdpSocket]>> =
            udp.into_iter().map(UdpSocket::from_std).collect();
        Ok(Arc::new(Self {
            core: Mutex::new(Core::new(
                Arc::clone(&server.core),
                position,
                random_number(),
            )),
            udp: udp?,
            streams: Mutex::default(),
            server,
        }))
    }

    /// Serves clients over UDP, and runs timers, until the relay stops.
    pub(crate) fn run(self: &Arc<Self>) {
        for index in 0..self.udp.len() {
            let worker = Arc::clone(self);
            self.server.tasks.spawn(async move {
                let stop = worker.server.stop.clone();
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = worker.receive_clients(index) => {}
                }
            });
        }
        let worker = Arc::clone(self);
        self.server.tasks.spawn(async move {
            let mut tick = tokio::time::interval(TICK_INTERVAL);
            loop {
                tokio::select! {
                    () = worker.server.stop.cancelled() => break,
                    _ = tick.tick() => worker.tick(),
                }
            }
            worker.core.lock().end_all();
        });
    }

    fn tick(&self) {
        let now = self.server.now();
        let mut core = self.core.lock();
        core.expire(now);
        let counts = core.take_counts();
        drop(core);
        let metrics = &self.server.metrics;
        metrics.dropped.increment(counts.dropped);
        metrics.refused.increment(counts.refused);
        metrics.revoked.increment(counts.revoked);
        metrics.relayed.increment(counts.relayed);
        metrics.allocations_made.increment(counts.allocated);
        metrics.throttled.increment(counts.throttled);
        metrics.dialled.increment(counts.dialled);
        metrics.accepted.increment(counts.accepted);
        metrics.unreachable.increment(counts.unreachable);
        metrics.unclaimed.increment(counts.unclaimed);
    }

    async fn receive_clients(self: &Arc<Self>, index: usize) {
        let Some(socket) = self.udp.get(index) else {
            return;
        };
        while socket.readable().await.is_ok() {
            self.pull_clients(index, socket);
        }
    }

    /// Reads the available datagrams of clients.
    fn pull_clients(self: &Arc<Self>, index: usize, socket: &UdpSocket) {
        let listener = u16::try_from(index).unwrap_or(u16::MAX);
        let now = self.server.now();
        BUFFER.with_borrow_mut(|buffer| {
            for _ in 0..MAX_BURST {
                match socket.try_recv_from(buffer) {
                    Ok((length, address)) => {
                        let client = Client {
                            address,
                            listener,
                            connection: 0,
                        };
                        let bytes = buffer.get(..length).unwrap_or_default();
                        if let InputOutcome::Answer(answer) = self.handle_input(now, client, bytes)
                        {
                            // A lost datagram is acceptable: the client retries.
                            socket.try_send_to(&answer, address).ok();
                        }
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    // The error belongs to an earlier packet; the socket still works.
                    Err(_) => {}
                }
            }
        });
    }

    /// Handles a datagram or a frame of a client, and returns the response.
    pub(crate) fn handle_input(
        self: &Arc<Self>,
        now: Time,
        client: Client,
        bytes: &[u8],
    ) -> InputOutcome {
        let mut core = self.core.lock();
        match core.on_client_packet(now, client, bytes) {
            Action::NoAction => InputOutcome::NoResponse,
            Action::Answer(answer) => InputOutcome::Answer(answer),
            Action::Send { peer, .. } if !self.server.permits_peer(Transport::Udp, peer) => {
                InputOutcome::NoResponse
            }
            Action::Send { socket, peer, data } => {
                let peer = self.server.relays.addresses.to_local(peer);
                // A lost datagram is acceptable.
                socket.send(data, peer).ok();
                InputOutcome::NoResponse
            }
            Action::Open(open) => {
                let reader = SocketReader {
                    worker: self,
                    id: open.id,
                };
                let opened = self.server.relays.open(open, now.monotonic, &reader);
                InputOutcome::Answer(core.opened(now, opened))
            }
            Action::Dial {
                number,
                relay,
                peer,
            } => {
                let origin = relay.origin();
                drop(core);
                self.dial(number, origin, peer);
                InputOutcome::NoResponse
            }
            Action::Join(join) => {
                let held = ConnectionGuard {
                    worker: Arc::clone(self),
                    number: join.number,
                };
                InputOutcome::Joined(Box::new(JoinedPeer {
                    join: *join,
                    guard: held,
                }))
            }
        }
    }

    /// Handles a frame of a connection. The peer connection that it binds may belong to another
    /// worker.
    pub(crate) fn handle_frame(
        self: &Arc<Self>,
        now: Time,
        client: Client,
        bytes: &[u8],
    ) -> InputOutcome {
        match self.server.worker_of(bytes) {
            Some(other) if !self.has_allocation(client) => other.handle_input(now, client, bytes),
            _ => self.handle_input(now, client, bytes),
        }
    }

    fn dial(self: &Arc<Self>, number: ConnectionNumber, origin: Option<Origin>, peer: SocketAddr) {
        let relays = &self.server.relays;
        let is_reached = self.server.permits_peer(Transport::Tcp, peer);
        match origin {
            Some(origin) if is_reached => {
                let peer = relays.addresses.to_local(peer);
                let dialling = streams::dial(Arc::clone(self), number, origin, peer);
                self.server.tasks.spawn(dialling);
            }
            _ => self.dialled(number, Err(Unreachable)),
        }
    }

    /// Handles the result of a dial.
    pub(crate) fn dialled(
        &self,
        number: ConnectionNumber,
        stream: Result<PeerStream, Unreachable>,
    ) {
        let now = self.server.now();
        let notification = self.core.lock().dialled(now, number, stream);
        self.send_message(notification);
    }

    /// Handles a peer's connection to a relayed address.
    pub(crate) fn on_peer_connected(&self, id: AllocationId, peer: SocketAddr, stream: PeerStream) {
        let peer = self.server.relays.addresses.to_public(peer);
        if !self.server.permits_peer(Transport::Tcp, peer) {
            return;
        }
        let now = self.server.now();
        let notification = self.core.lock().accepted(now, id, peer, stream);
        self.send_message(notification);
    }

    /// Sends a message to a client's connection.
    fn send_message(&self, notification: Option<(Client, Vec<u8>)>) {
        let Some((client, message)) = notification else {
            return;
        };
        if let Some(stream) = self.streams.lock().get(&client.connection) {
            stream.push_response(&message);
        }
    }

    /// Reads the available datagrams of peers.
    fn read_peer_datagrams(&self, id: AllocationId, socket: &UdpSocket) {
        let now = self.server.now();
        BUFFER.with_borrow_mut(|buffer| {
            let mut core = self.core.lock();
            for _ in 0..MAX_BURST {
                let Some(place) = buffer.get_mut(HEADROOM..HEADROOM + MAX_DATAGRAM) else {
                    return;
                };
                let (length, peer) = match socket.try_recv_from(place) {
                    Ok(received) => received,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                    // ICMP reported that the peer's port or host is unreachable.
                    Err(_) => continue,
                };
                let peer = self.server.relays.addresses.to_public(peer);
                // On this machine, only other allocations may be peers.
                if !self.server.permits_peer(Transport::Udp, peer) {
                    continue;
                }
                let Some((client, wrap)) = core.on_peer_datagram(now, id, peer, length) else {
                    continue;
                };
                let Some(range) = wrap.apply(buffer, length, client.is_stream()) else {
                    continue;
                };
                let bytes = buffer.get(range).unwrap_or_default();
                self.send_to_client(client, bytes);
            }
        });
    }

    /// Sends data to a client. Data that cannot be sent immediately is lost.
    fn send_to_client(&self, client: Client, bytes: &[u8]) {
        if client.is_stream() {
            if let Some(stream) = self.streams.lock().get(&client.connection) {
                stream.push_data(bytes);
            }
        } else if let Some(socket) = self.udp.get(usize::from(client.listener)) {
            socket.try_send_to(bytes, client.address).ok();
        }
    }

    /// Registers a connection over which data can be sent.
    pub(crate) fn register_stream(&self, client: Client, outbound: Arc<Outbound>) {
        self.streams.lock().insert(client.connection, outbound);
    }

    /// Removes a closed connection, which ends its allocation.
    pub(crate) fn unregister_stream(&self, client: Client) {
        self.streams.lock().remove(&client.connection);
        self.core.lock().client_gone(client);
    }

    pub(crate) fn has_allocation(&self, client: Client) -> bool {
        self.core.lock().has_allocation(client)
    }

    pub(crate) fn allocations(&self) -> usize {
        self.core.lock().len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.core.lock().connections()
    }

    /// Ends allocations that are no longer permitted.
    pub(crate) fn review(&self) {
        let now = self.server.now();
        self.core.lock().review(now);
    }

    pub(crate) fn drain(&self) {
        self.core.lock().drain();
    }
}

/// Result of a client's input.
#[derive(Debug)]
pub(crate) enum InputOutcome {
    /// There is no response now.
    NoResponse,
    /// This response is sent.
    Answer(Vec<u8>),
    /// The connection now carries a peer's data.
    Joined(Box<JoinedPeer>),
}

/// Peer connection that a client's connection is joined with.
#[derive(Debug)]
pub(crate) struct JoinedPeer {
    pub(crate) join: JoinedConnections<PeerStream>,
    pub(crate) guard: ConnectionGuard,
}

/// Counts a connection; dropping it removes the connection from the count.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    worker: Arc<Worker>,
    number: ConnectionNumber,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.worker.core.lock().disconnected(self.number);
    }
}

/// Starts the tasks that read the sockets of one allocation.
struct SocketReader<'a> {
    worker: &'a Arc<Worker>,
    id: AllocationId,
}

impl Reader for SocketReader<'_> {
    fn receive(&self, socket: Arc<UdpSocket>) -> AbortHandle {
        let (worker, id) = (Arc::clone(self.worker), self.id);
        let task = tokio::spawn(async move {
            while socket.readable().await.is_ok() {
                worker.read_peer_datagrams(id, &socket);
            }
        });
        task.abort_handle()
    }

    fn accept(&self, listener: TcpListener, ended: CancellationToken) {
        let worker = Arc::clone(self.worker);
        let accepting = streams::accept_peers(worker, self.id, listener, ended);
        self.worker.server.tasks.spawn(accepting);
    }
}

/// Interval of the check for expired objects.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
