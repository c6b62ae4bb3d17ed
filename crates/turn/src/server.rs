//! Starting and stopping a relay.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use acme::{Acceptor, Certificates, Orders, serve_http_answers};
use daemon::clock::{Clock, SystemClock};
use daemon::connections::Connections;
use daemon::metrics::{MetricsServer, Readiness};
use daemon::shutdown::Shutdown;
use daemon::small_http::SmallServer;
use rustls::ServerConfig;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use transport::Workers;

use crate::config::TurnConfig;
use crate::connections;
use crate::core::tcp::CorePosition;
use crate::core::{Nonces, Peers, Quotas, SharedState};
use crate::directory::Directory;
use crate::managed::{LinkHandle, PlatformLink};
use crate::metrics::TurnMetrics;
use crate::start_error::StartError;
use crate::worker::relay::Relays;
use crate::worker::{Server, Worker};

/// A running relay. It stops when its [`Shutdown`] requests it; dropping this value does not stop
/// it.
#[derive(Debug)]
pub struct RunningRelay {
    listeners: Vec<SocketAddr>,
    tls_listeners: Vec<SocketAddr>,
    metrics: Option<SocketAddr>,
    link: Option<Arc<link::Status>>,
    stopping: JoinHandle<()>,
}

impl RunningRelay {
    /// Listeners for clients over UDP and TCP.
    pub fn listen_addrs(&self) -> &[SocketAddr] {
        &self.listeners
    }

    /// Listeners for clients over TLS.
    pub fn tls_listen_addrs(&self) -> &[SocketAddr] {
        &self.tls_listeners
    }

    /// The metrics listener, if there is one.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Status of the link to the platform, if there is one.
    pub fn link(&self) -> Option<&Arc<link::Status>> {
        self.link.as_ref()
    }

    /// Waits until the relay has stopped, after all allocations ended or the deadline passed.
    pub async fn stopped(self) {
        if let Err(error) = self.stopping.await {
            warn!(%error, "the relay did not shut down cleanly");
        }
    }
}

/// Starts a relay. All start errors are detected before this returns.
///
/// # Errors
/// [`StartError`], with the key of the configuration.
pub async fn start(config: TurnConfig, shutdown: Shutdown) -> Result<RunningRelay, StartError> {
    start_with_clock(config, shutdown, Arc::new(SystemClock)).await
}

/// Starts a relay with another clock, for tests that change the time.
///
/// # Errors
/// The errors of [`start`].
pub async fn start_with_clock(
    config: TurnConfig,
    shutdown: Shutdown,
    clock: Arc<dyn Clock>,
) -> Result<RunningRelay, StartError> {
    // The recorder is installed first, because values without a recorder are lost.
    let recorder = daemon::metrics::recorder()?;
    let readiness = Readiness::default();
    let secret = config.secret()?;
    let directory = Arc::new(Directory::new(&config.realm, secret.as_ref()));
    let managed = match &config.control_plane {
        None => None,
        Some(platform) => {
            let to = Arc::clone(&directory);
            Some(PlatformLink::open(platform, to, readiness.clone()).await?)
        }
    };
    let certificates = config.tls.as_ref();
    let certificates = certificates.map(|tls| tls.open::<StartError>(&clock));
    let certificates = certificates.transpose()?;
    let acceptor = certificates.as_ref().map(acceptor).transpose()?;
    let metrics = daemon::metrics::serve(&config.metrics, recorder, readiness.clone()).await?;
    let workers = Workers::per_core("svc-turn").map_err(StartError::Workers)?;
    let bound = BoundListeners::bind(&config, workers.count())?;
    let answers = http_answers(&config, certificates.as_ref()).await?;
    let server = new_server(&config, &bound, Arc::clone(&directory), Arc::clone(&clock))?;

    let (listeners, tls_listeners) = (bound.plain.clone(), bound.tls.clone());
    let serving = serve(bound, &server, &workers, acceptor).await?;
    let stop = shutdown.drain().child_token();
    let orders = certificates.map(|certificates| certificates.start_orders(stop));
    let orders = orders.transpose().map_err(StartError::Workers)?.flatten();
    if let Some(orders) = &orders {
        orders.refresh(&readiness);
    }
    let changes = managed.as_ref().map(PlatformLink::changes);
    if let Some(changes) = changes {
        tokio::spawn(reauthorize_on_changes(
            Arc::clone(&serving),
            changes,
            server.stop.clone(),
        ));
    }
    // With its own secret a relay can serve immediately; otherwise it needs the platform's secret.
    readiness.set_ready(secret.is_some() || directory.has_snapshot());
    let following = managed.map(|managed| managed.follow(clock));
    info!(
        listeners = ?listeners, tls = ?tls_listeners, realm = config.realm,
        "the relay is running"
    );

    let link = following.as_ref().map(LinkHandle::status);
    let metrics_addr = metrics.as_ref().map(MetricsServer::local_addr);
    let parts = Parts {
        server,
        serving,
        workers,
        following,
        orders,
        answers,
        metrics,
        readiness,
    };
    let stopping = tokio::spawn(run_until_stopped(parts, shutdown));
    Ok(RunningRelay {
        listeners,
        tls_listeners,
        metrics: metrics_addr,
        link,
        stopping,
    })
}

fn new_server(
    config: &TurnConfig,
    bound: &BoundListeners,
    directory: Arc<Directory>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<Server>, StartError> {
    let mut key = [0; 32];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| StartError::Random)?;
    let relay = config.relay.clone();
    let listeners = bound.plain.iter().chain(&bound.tls).copied();
    let announced = relay.announced.iter().flatten();
    let own = announced.chain(relay.bind.iter().flatten()).copied();
    let peers = Peers {
        allowed: config.allowed_peers.clone(),
        own: own.filter(|ip| !ip.is_unspecified()).collect(),
        relay_ports: relay.ports.clone(),
        listeners: listeners.collect(),
    };
    let core = Arc::new(SharedState {
        realm: config.realm.clone().into(),
        nonces: Nonces::new(&key),
        quotas: Quotas::new(config.quota, config.bandwidth),
        peers,
        families: relay.announced.map(|ip| ip.is_some()),
        limits: config.limits,
        authority: directory,
    });
    Ok(Arc::new(Server {
        core,
        relays: Relays::new(relay),
        connections: Connections::new(config.max_connections, config.max_connections_per_source),
        metrics: TurnMetrics::new(),
        clock,
        started: Instant::now(),
        last_connection: AtomicU32::new(1),
        stop: CancellationToken::new(),
        tasks: TaskTracker::new(),
        workers: OnceLock::new(),
    }))
}

/// Distributes the sockets to the workers.
async fn serve(
    bound: BoundListeners,
    server: &Arc<Server>,
    workers: &Workers,
    acceptor: Option<Acceptor>,
) -> Result<Arc<[Arc<Worker>]>, StartError> {
    let mut all = Vec::new();
    let worker_count = u32::try_from(bound.shares.len()).unwrap_or(u32::MAX);
    for (index, share) in bound.shares.into_iter().enumerate() {
        let position = CorePosition {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            count: worker_count,
        };
        let (server, acceptor) = (Arc::clone(server), acceptor.clone());
        let starting = workers.run(index, async move {
            let worker = Worker::new(server, position, share.udp)?;
            worker.run();
            let plain = share.tcp.into_iter().map(|listener| (listener, None));
            let tls = share.tls.into_iter();
            let tls = tls.map(|listener| (listener, acceptor.clone()));
            for (listener, acceptor) in plain.chain(tls) {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let serving = connections::serve(listener, Arc::clone(&worker), acceptor);
                worker.server.tasks.spawn(serving);
            }
            Ok(worker)
        });
        let started = starting.await.map_err(io::Error::other);
        all.push(
            started
                .and_then(|started| started)
                .map_err(StartError::Workers)?,
        );
    }
    server
        .workers
        .get_or_init(|| all.iter().map(Arc::downgrade).collect());
    Ok(all.into())
}

/// The bound sockets of all listeners.
struct BoundListeners {
    plain: Vec<SocketAddr>,
    tls: Vec<SocketAddr>,
    shares: Vec<WorkerSockets>,
}

/// The sockets of one worker.
#[derive(Default)]
struct WorkerSockets {
    udp: Vec<UdpSocket>,
    tcp: Vec<TcpListener>,
    tls: Vec<TcpListener>,
}

impl BoundListeners {
    fn bind(config: &TurnConfig, workers: usize) -> Result<Self, StartError> {
        let mut bound = Self {
            plain: Vec::new(),
            tls: Vec::new(),
            shares: (0..workers).map(|_| WorkerSockets::default()).collect(),
        };
        for address in &config.listen {
            let listened = bound
                .listen(*address)
                .map_err(|source| StartError::Listen {
                    key: "turn.listen_addr",
                    address: *address,
                    source,
                })?;
            bound.plain.push(listened);
        }
        for address in &config.tls_listen {
            let listened = bound.listen_tls(*address);
            let listened = listened.map_err(|source| StartError::Listen {
                key: "turn.tls_listen_addr",
                address: *address,
                source,
            })?;
            bound.tls.push(listened);
        }
        Ok(bound)
    }

    /// Listens on one port over UDP and TCP. The system chooses the port if it is 0.
    fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let tries = if address.port() == 0 { PORT_TRIES } else { 1 };
        let mut tried = Err(io::ErrorKind::AddrInUse.into());
        for _ in 0..tries {
            tried = listen_both(address, self.shares.len());
            if tried.is_ok() {
                break;
            }
        }
        let (address, udp, tcp) = tried?;
        for ((share, udp), tcp) in self.shares.iter_mut().zip(udp).zip(tcp) {
            share.udp.push(udp);
            share.tcp.push(tcp);
        }
        Ok(address)
    }

    fn listen_tls(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let mut address = address;
        for share in &mut self.shares {
            let listener = listen_tcp(address)?;
            address = listener.local_addr()?;
            share.tls.push(listener);
        }
        Ok(address)
    }
}

/// Number of attempts, because another program may use the port over TCP that the system chose for
/// UDP.
const PORT_TRIES: usize = 16;
const BACKLOG: i32 = 1024;
/// Receive buffer of a listener's socket in bytes: the data of some milliseconds.
const RECEIVE_BUFFER: usize = 4 * 1024 * 1024;

type BoundSockets = (SocketAddr, Vec<UdpSocket>, Vec<TcpListener>);

fn listen_both(address: SocketAddr, workers: usize) -> io::Result<BoundSockets> {
    let mut address = address;
    let (mut udp, mut tcp) = (Vec::new(), Vec::new());
    for _ in 0..workers {
        let socket = reusable(address, Type::DGRAM, Protocol::UDP)?;
        // A smaller buffer is sufficient if the system limits it.
        socket.set_recv_buffer_size(RECEIVE_BUFFER).ok();
        socket.bind(&address.into())?;
        let socket: UdpSocket = socket.into();
        address = socket.local_addr()?;
        udp.push(socket);
    }
    for _ in 0..workers {
        tcp.push(listen_tcp(address)?);
    }
    Ok((address, udp, tcp))
}

fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = reusable(address, Type::STREAM, Protocol::TCP)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn reusable(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        kind.nonblocking(),
        Some(protocol),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(true)?;
    Ok(socket)
}

/// The listener that answers `http-01`, if there is one.
async fn http_answers(
    config: &TurnConfig,
    certificates: Option<&Certificates>,
) -> Result<Option<SmallServer>, StartError> {
    let address = config.tls.as_ref().and_then(|tls| tls.http_listen);
    let challenges = certificates.and_then(Certificates::challenges);
    let (Some(address), Some(challenges)) = (address, challenges) else {
        return Ok(None);
    };
    let started = serve_http_answers(address, challenges).await;
    let started = started.map_err(|source| StartError::Listen {
        key: "turn.tls.http_listen_addr",
        address,
        source,
    })?;
    Ok(Some(started))
}

fn acceptor(certificates: &Certificates) -> Result<Acceptor, StartError> {
    let mut config = ServerConfig::builder_with_provider(daemon::tls::provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificates.resolver());
    config.ignore_client_order = true;
    Ok(Acceptor::new(Arc::new(config), certificates.challenges()))
}

/// Checks all allocations again after each update of the platform, at most once in
/// [`REAUTHORIZE_PAUSE`].
async fn reauthorize_on_changes(
    workers: Arc<[Arc<Worker>]>,
    mut changes: watch::Receiver<u64>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = changes.changed() => if changed.is_err() {
                return;
            },
        }
        for worker in &*workers {
            worker.review();
        }
        tokio::time::sleep(REAUTHORIZE_PAUSE).await;
    }
}

/// Pause between checks, so that frequent updates do not keep the relay from relaying.
const REAUTHORIZE_PAUSE: Duration = Duration::from_millis(100);

/// Parts of a relay, in the order in which they are stopped.
struct Parts {
    server: Arc<Server>,
    serving: Arc<[Arc<Worker>]>,
    workers: Workers,
    following: Option<LinkHandle>,
    orders: Option<Orders>,
    answers: Option<SmallServer>,
    metrics: Option<MetricsServer>,
    readiness: Readiness,
}

/// Updates the gauges while the relay runs, and then stops it. It accepts no new allocations, lets
/// existing ones continue until the deadline, ends them, and reports the remaining usage.
async fn run_until_stopped(parts: Parts, shutdown: Shutdown) {
    let Parts {
        server,
        serving,
        workers,
        following,
        orders,
        answers,
        metrics,
        readiness,
    } = parts;
    let allocations = || {
        serving
            .iter()
            .map(|worker| worker.allocations())
            .sum::<usize>()
    };
    let mut refresh = tokio::time::interval(GAUGE_INTERVAL);
    let mut is_draining = false;
    loop {
        tokio::select! {
            () = shutdown.hard().cancelled() => break,
            () = shutdown.drain().cancelled(), if !is_draining => {
                info!(allocations = allocations(), "draining");
                is_draining = true;
                readiness.set_ready(false);
                for worker in &*serving {
                    worker.drain();
                }
            }
            _ = refresh.tick() => {
                let count = u32::try_from(allocations()).unwrap_or(u32::MAX);
                server.metrics.allocations.set(f64::from(count));
                let count = serving.iter().map(|worker| worker.connections()).sum::<usize>();
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                server.metrics.peer_connections.set(f64::from(count));
                server.relays.expire(server.now().monotonic);
                if let Some(following) = &following {
                    following.refresh();
                }
                if let Some(orders) = &orders {
                    orders.refresh(&readiness);
                }
            }
        }
        if is_draining && allocations() == 0 {
            break;
        }
    }
    server.stop.cancel();
    server.tasks.close();
    tokio::select! {
        () = server.tasks.wait() => {}
        () = tokio::time::sleep(TASK_END_TIMEOUT) => warn!("something does not end"),
    }
    if let Some(following) = following {
        tokio::select! {
            () = following.finish() => {}
            () = tokio::time::sleep(TASK_END_TIMEOUT) => {}
        }
    }
    // Joins threads, which must not block this one.
    let joined = tokio::task::spawn_blocking(move || {
        drop(workers);
        if let Some(orders) = orders {
            orders.finish();
        }
    });
    joined.await.ok();
    if let Some(answers) = answers {
        answers.stop().await;
    }
    if let Some(metrics) = metrics {
        metrics.stop().await;
    }
    info!("stopped");
}

/// Interval of updates of the gauges.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);
/// Time for tasks to end.
const TASK_END_TIMEOUT: Duration = Duration::from_secs(5);
