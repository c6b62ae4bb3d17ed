//! Start and stop of an engine.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, Weak};

use acme::{Certificates, RunningResponder};
use daemon::config::ConfigError;
use daemon::metrics::{MetricsServer, Readiness};
use daemon::shutdown::Shutdown;
use daemon::tls::{ReloadingCert, TlsError};
use http1::FieldValueBuf;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use transport::Workers;
use types::tunnel::Hostname;

use crate::access::{CHECKS_AT_ONCE, JwksError, JwksSource, PasswordChecks, Tenancy, Tokens};
use crate::api::{AnswerBudget, Api, RateLimiter, router};
use crate::browser::{Browsers, PageFooter};
use crate::clock::{Clock, SystemClock};
use crate::cluster::{ClusterMember, RemoteTunnel};
use crate::config::{self, Auth, EngineConfig, JwtAuth};
use crate::core::{Core, Worker};
use crate::directory::{Directory, Project};
use crate::domains::{DomainCertificates, DomainResolver, Domains, ProjectDomains};
use crate::edge::UpstreamPool;
use crate::edge::revocation::{self, ActiveVisits};
use crate::handover::{Handover, Origin, Replacement, take_over};
use crate::limits::SourceVisits;
use crate::listen::{Connections, Handshakes, TcpPorts, TlsConfigs};
use crate::live::{HostnameError, LiveLimits, Namespace, TunnelRegistry};
use crate::managed::{LinkHandle, PlatformLink};
use crate::metrics::EngineMetrics;
use crate::start_error::StartError;
use crate::tunnel_closer::CoreTunnelCloser;
use crate::webtty::Sessions;
use crate::webtty::recordings::Recorder;

mod files;
mod joining;
mod listeners;
mod stop;

use self::files::{countries, open_access_log};
use self::joining::ClusterParts;
use self::listeners::Listeners;
use self::stop::{Parts, run_until_stopped};

/// A running engine. It stops on its [`Shutdown`]; dropping this value does not stop it.
#[derive(Debug)]
pub struct RunningEngine {
    tls: SocketAddr,
    http: Option<SocketAddr>,
    peers: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    link: Option<Arc<link::Status>>,
    core: Arc<Core>,
    removed_listeners: Vec<String>,
    stopping: JoinHandle<()>,
}

impl RunningEngine {
    /// Address that serves agents, visitors and the Engine API.
    pub fn tls_addr(&self) -> SocketAddr {
        self.tls
    }

    /// The plain listener, if there is one.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The metrics listener, if there is one.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// The listener for other engines of the cluster, if there is one.
    pub fn peers_addr(&self) -> Option<SocketAddr> {
        self.peers
    }

    /// Waits until this engine is connected to another one of its cluster, or no longer connected.
    /// Does not wait outside of a cluster.
    pub async fn wait_for_peer(&self, engine: &str, is_connected: bool) {
        if let Some(cluster) = &self.core.cluster {
            cluster.wait_for_peer(engine, is_connected).await;
        }
    }

    /// The entry of an online tunnel of this engine in the directories of the other engines, by its id
    /// or its name within its project. `None` outside of a cluster.
    pub fn directory_entry(
        &self,
        project: &str,
        id_or_name: &str,
        generation: Option<u64>,
    ) -> Option<RemoteTunnel> {
        let cluster = self.core.cluster.as_ref()?;
        let tunnel = self.core.live.find(project, id_or_name)?;
        let engine = cluster.engine().to_owned();
        Some(RemoteTunnel::of(&tunnel, generation, engine))
    }

    /// State of the link to the platform, on a managed engine.
    pub fn link(&self) -> Option<&Arc<link::Status>> {
        self.link.as_ref()
    }

    /// Ownership of names in the cluster, if the engine is in one.
    pub fn membership(&self) -> Option<&Arc<etcd::Cluster>> {
        self.core.membership.as_ref()
    }

    /// Replaces this engine by another process.
    pub fn replacement(&self) -> Replacement {
        Replacement::new(Arc::clone(&self.core))
    }

    /// Copies of the listening sockets, with the names of their listeners, for the supervisor.
    ///
    /// # Errors
    /// The system refuses descriptors.
    pub fn listeners(&self) -> io::Result<Vec<(&'static str, OwnedFd)>> {
        self.core.handover.listeners()
    }

    /// Names of inherited sockets that no listener uses any more.
    pub fn removed_listeners(&self) -> &[String] {
        &self.removed_listeners
    }

    /// Waits until the engine accepts connections. Without a predecessor it does immediately.
    /// Returns false if it stops before.
    pub async fn wait_until_serving(&self) -> bool {
        let begin = self.core.handover.begin();
        let drain = self.core.shutdown.drain();
        drain.run_until_cancelled(begin.cancelled()).await.is_some()
    }

    /// Waits until the engine has stopped: either drained, or stopped hard at the deadline.
    pub async fn stopped(self) {
        if let Err(error) = self.stopping.await {
            warn!(%error, "the engine did not shut down cleanly");
        }
    }
}

/// Starts an engine. Every configuration error is reported before this returns.
///
/// # Errors
/// [`StartError`], which names the configuration's key.
pub async fn start(config: EngineConfig, shutdown: Shutdown) -> Result<RunningEngine, StartError> {
    start_with_clock(config, shutdown, Arc::new(SystemClock)).await
}

/// As [`start`], with another clock: for tests that move it.
///
/// # Errors
/// As [`start`].
pub async fn start_with_clock(
    config: EngineConfig,
    shutdown: Shutdown,
    clock: Arc<dyn Clock>,
) -> Result<RunningEngine, StartError> {
    Box::pin(start_parts(config, shutdown, clock, Origin::none(), None)).await
}

/// As [`start`], with sockets of the supervisor or of the process that this one replaces.
///
/// # Errors
/// As [`start`].
pub async fn start_from(
    config: EngineConfig,
    shutdown: Shutdown,
    origin: Origin,
) -> Result<RunningEngine, StartError> {
    let clock = Arc::new(SystemClock);
    Box::pin(start_parts(config, shutdown, clock, origin, None)).await
}

/// As [`start_with_clock`], as a member of a cluster without a store: for tests of the connections
/// between engines. The section `cluster` of the configuration is not used.
///
/// # Errors
/// As [`start`]; also if the certificate of the cluster cannot be used.
pub async fn start_in_cluster(
    config: EngineConfig,
    shutdown: Shutdown,
    clock: Arc<dyn Clock>,
    member: ClusterMember,
) -> Result<RunningEngine, StartError> {
    let origin = Origin::none();
    Box::pin(start_parts(config, shutdown, clock, origin, Some(member))).await
}

#[expect(clippy::too_many_lines, reason = "starts the parts in their order")]
async fn start_parts(
    config: EngineConfig,
    shutdown: Shutdown,
    clock: Arc<dyn Clock>,
    origin: Origin,
    member: Option<ClusterMember>,
) -> Result<RunningEngine, StartError> {
    let Origin {
        mut sockets,
        predecessor,
    } = origin;
    let handover = Handover::new(predecessor.is_some());
    let base: Hostname = config
        .host
        .parse()
        .map_err(|error| StartError::Host(format!("{error}")))?;
    let namespace =
        Namespace::new(base).map_err(|error: HostnameError| StartError::Host(error.to_string()))?;
    let cdn_loop_id = FieldValueBuf::parse(config.host.clone().into_bytes())
        .ok_or_else(|| StartError::Host("it is not ASCII".to_owned()))?;
    // The recorder comes before anything that is counted: without it, metrics are lost.
    let recorder = daemon::metrics::recorder()?;
    transport::memory::set_limit(config.limits.max_buffered_bytes);
    let readiness = Readiness::default();
    let is_managed = matches!(config.auth, Auth::Platform(_));
    let files = certificate_files(&config, is_managed)?;
    let certificates = Certificates::open(files, config.acme.as_ref(), &clock)?;
    let domains = Arc::new(Domains::default());
    let challenges = certificates.challenges();
    let of_domains = DomainCertificates::open(&config, &domains, challenges, &clock)?;
    let of_projects = of_domains.of_projects(&config, &domains, namespace.base());
    let TokenAuthority {
        tenancy,
        tokens,
        managed,
        browsers,
    } = open_authority(&config, of_projects, predecessor.is_some()).await?;
    let own = certificates.resolver();
    let resolver = DomainResolver::new(Arc::clone(&domains), namespace.base().clone(), own);
    let tls = TlsConfigs::new(Arc::new(resolver))?;
    let namespace = namespace.with_domains(domains);
    let countries = countries(&config).await?;
    let (access_log, log_thread) = open_access_log(&config)?;
    let metrics = listeners::bind_metrics(&config.metrics, &handover, &mut sockets)?;
    let metrics = metrics.map(|listener| {
        let (begin, readiness) = (handover.begin().clone(), readiness.clone());
        daemon::metrics::serve_on(&config.metrics, listener, recorder, readiness, begin)
    });
    let metrics = metrics.transpose()?;

    let workers = Workers::per_core("svc-worker").map_err(StartError::Workers)?;
    let peers = member.as_ref().map(|member| member.listen);
    let peers = peers.or_else(|| config.cluster.as_ref().map(|cluster| cluster.listen));
    let listeners = Listeners::bind((&config, peers), workers.count(), &handover, &mut sockets)?;
    let removed_listeners = sockets.finish()?;
    let responder = Certificates::bind_responder(config.acme.as_ref())?;

    let live = TunnelRegistry::new(live_limits(&config), Arc::clone(&clock));
    let ClusterParts {
        membership,
        directory,
        cluster,
    } = ClusterParts::open(config.cluster.as_ref(), member, listeners.peers_addr)?;
    let visits = TaskTracker::new();
    let earlier = handover.predecessor_ended().clone();
    let recorder = Recorder::open_after(&config.recordings, Arc::clone(&clock), earlier).await?;
    let terminals = Arc::new(Sessions::new(recorder));
    // The API closes tunnels, which needs the rest of the core.
    let core = Arc::new_cyclic(|core: &Weak<Core>| Core {
        api: router(Arc::new(Api {
            live: Arc::clone(&live),
            closer: Arc::new(CoreTunnelCloser(Weak::clone(core))),
            tokens: Arc::clone(&tokens),
            clock: Arc::clone(&clock),
            tenancy: tenancy.clone(),
            terminals: Arc::clone(&terminals),
            link: managed.as_ref().map(PlatformLink::link),
            compat: config.compat_rstream,
            answers: AnswerBudget::new(&config.limits),
            rates: RateLimiter::new(&config.limits, Arc::clone(&clock)),
            upgraded: visits.clone(),
        })),
        handshakes: Handshakes::new(config.limits.max_handshakes_per_source),
        connections: Connections::new(&config.limits),
        source_visits: SourceVisits::new(config.limits.max_streams_per_source),
        tcp_ports: TcpPorts::new(&config, workers.count(), Arc::clone(&clock)),
        link_passwords: PasswordChecks::new(CHECKS_AT_ONCE, Arc::clone(&clock)),
        page_footer: PageFooter::new(&config.pages),
        config,
        clock,
        handover,
        live,
        membership,
        tokens,
        tenancy,
        cluster,
        terminals,
        browsers,
        namespace,
        cdn_loop_id,
        pending_streams: Arc::default(),
        tls,
        challenges: certificates.challenges(),
        certificates: certificates.states(),
        countries,
        access_log,
        link: managed.as_ref().map(PlatformLink::link),
        reports: managed.as_ref().map(PlatformLink::reports),
        metrics: EngineMetrics::new(),
        shutdown,
        closing: CancellationToken::new(),
        visits,
        routed: TaskTracker::new(),
        agents: TaskTracker::new(),
        agents_stop: CancellationToken::new(),
        workers: OnceLock::new(),
        tls_addr: OnceLock::new(),
    });
    core.tls_addr.set(listeners.tls_addr).ok();
    core.workers.set(worker_states(&core, &workers)).ok();
    spawn_refresh_tasks(&core)?;
    joining::join(&core, directory).await;
    let (tls_addr, http_addr) = (listeners.tls_addr, listeners.http_addr);
    let peers_addr = listeners.peers_addr;
    listeners.serve(&core);
    joining::connect(&core);
    // The listeners answer the authority, so they are served before.
    let responder = responder.map(RunningResponder::start);
    let begin = core.handover.begin();
    let orders =
        certificates.start_orders_after(begin.clone(), core.shutdown.drain().child_token());
    let orders = orders.map_err(StartError::Workers)?;
    let domain_orders = of_domains.start(&core.clock, begin, core.shutdown.drain());
    let domain_orders = domain_orders.map_err(StartError::Workers)?;
    if let Some(orders) = &orders {
        orders.refresh(&readiness);
    }
    // A managed engine is ready when it has the state that it serves.
    readiness.set_ready(managed.is_none());
    let managed = managed.map(|managed| managed.follow(&core, &readiness));
    info!(tls = %tls_addr, host = core.config.host, "the engine is running");
    let version = predecessor.as_ref().map_or(0, |old| old.state_version);
    let informed = managed.as_ref().map(|link| link.wait_for_state(version));
    take_over(&core, predecessor, informed).await?;

    let link = managed.as_ref().map(LinkHandle::status);
    let metrics_addr = metrics.as_ref().map(MetricsServer::local_addr);
    let parts = Parts {
        workers,
        metrics,
        readiness,
        managed,
        orders,
        domain_orders,
        responder,
        log_thread,
    };
    let stopping = tokio::spawn(run_until_stopped(Arc::clone(&core), parts));
    Ok(RunningEngine {
        core,
        removed_listeners,
        tls: tls_addr,
        http: http_addr,
        peers: peers_addr,
        metrics: metrics_addr,
        link,
        stopping,
    })
}

/// The certificate from files. A new one must have the names of the one before.
fn certificate_files(
    config: &EngineConfig,
    is_managed: bool,
) -> Result<Option<ReloadingCert>, TlsError> {
    let mut names = config::wildcards(&config.host, is_managed);
    names.push(config.host.clone());
    let files = config.certificate.clone();
    files
        .map(|files| ReloadingCert::load_for(files, daemon::tls::provider(), names))
        .transpose()
}

/// The source of an engine's tokens: its configuration, or its platform.
struct TokenAuthority {
    tenancy: Tenancy,
    tokens: Arc<Tokens>,
    managed: Option<PlatformLink>,
    browsers: Option<Browsers>,
}

async fn open_authority(
    config: &EngineConfig,
    domains: ProjectDomains,
    is_successor: bool,
) -> Result<TokenAuthority, StartError> {
    match &config.auth {
        Auth::Keys(keys) => Ok(TokenAuthority {
            tokens: Tokens::new(keys.keyring(config.compat_rstream)?),
            tenancy: Tenancy::Community(Arc::new(Project::community())),
            managed: None,
            browsers: None,
        }),
        Auth::Platform(platform) => {
            let (seals, assertions) = config::edge_keys(platform)?;
            let directory = Arc::new(Directory::default());
            let wait = config.timeouts.fixed.update;
            let tokens = Tokens::managed(Arc::clone(&directory), config.compat_rstream, wait);
            let state = (Arc::clone(&directory), Arc::clone(&tokens));
            let host = &config.host;
            let managed = PlatformLink::open(platform, host, state, domains, is_successor).await?;
            Ok(TokenAuthority {
                tenancy: Tenancy::Managed(directory),
                tokens,
                managed: Some(managed),
                browsers: Some(Browsers::new(seals, assertions)),
            })
        }
    }
}

/// The state of each worker, for its runtime.
fn worker_states(core: &Arc<Core>, workers: &Workers) -> Box<[Arc<Worker>]> {
    let runtimes = workers.handles().iter().enumerate();
    let states = runtimes.map(|(index, runtime)| {
        Arc::new(Worker {
            index,
            runtime: runtime.clone(),
            core: Arc::clone(core),
            drain: core.shutdown.drain().child_token(),
            closing: core.closing.child_token(),
            upstreams: parking_lot::Mutex::new(UpstreamPool::default()),
            active_visits: ActiveVisits::default(),
            active: AtomicUsize::new(0),
        })
    });
    states.collect()
}

/// Starts the tasks that keep keys, authorisations and the file of countries current.
fn spawn_refresh_tasks(core: &Arc<Core>) -> Result<(), StartError> {
    if let Auth::Keys(keys) = &core.config.auth {
        keep_keys_fresh(keys, core)?;
    }
    let changes = core.tokens.changes();
    let reauthorizing = revocation::reauthorize_on_changes(Arc::clone(core), changes);
    tokio::spawn(reauthorizing);
    if let Some(countries) = &core.countries {
        let stop = core.shutdown.drain().clone();
        tokio::spawn(Arc::clone(countries).reload_periodically(stop));
    }
    Ok(())
}

fn live_limits(config: &EngineConfig) -> LiveLimits {
    LiveLimits {
        clients: config.limits.max_clients,
        tunnels: config.limits.max_tunnels,
        tunnels_per_client: config.limits.max_tunnels_per_client,
        watchers: config.limits.max_watchers,
        project_share: config.limits.project_share,
        failing: config.timeouts.fixed.failing_tunnel,
        ..LiveLimits::default()
    }
}

fn keep_keys_fresh(keys: &JwtAuth, core: &Arc<Core>) -> Result<(), StartError> {
    let Some(url) = &keys.jwks_url else {
        return Ok(());
    };
    let source = JwksSource::new(&url.to_string())
        .map_err(|error: JwksError| ConfigError::new("auth.jwt.jwks_url", error.to_string()))?;
    tokio::spawn(source.keep_fresh(Arc::clone(&core.tokens), core.shutdown.drain().clone()));
    Ok(())
}
