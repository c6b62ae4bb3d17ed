//! State that all workers of an engine share, and the state of each worker.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use daemon::access_log::AccessLog;
use daemon::shutdown::Shutdown;
use http1::FieldValueBuf;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use types::id::TunnelId;
use types::tunnel::{Country, Hostname};

use crate::access::{AuthContext, PasswordChecks, Tenancy, Tokens};
use crate::agents::{Agent, PendingStreams};
use crate::browser::{Browsers, PageFooter};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::config::EngineConfig;
use crate::directory::Project;
use crate::edge::UpstreamPool;
use crate::edge::revocation::ActiveVisits;
use crate::geo::Countries;
use crate::handover::Handover;
use crate::limits::SourceVisits;
use crate::listen::{Connections, Handshakes, TcpPorts};
use crate::live::{LiveTunnel, Namespace, PublishedName, Route, TunnelRegistry};
use crate::managed::Reports;
use crate::metrics::{EngineMetrics, Gauges};
use crate::webtty::Sessions;

/// The parts of an engine, created once at start. A request takes no lock in here; the only locks
/// on its path are those in the [`Worker`] of its own core.
pub(crate) struct Core {
    pub(crate) config: EngineConfig,
    pub(crate) clock: Arc<dyn Clock>,
    /// Replacement by a new process, and of an earlier one.
    pub(crate) handover: Handover,
    pub(crate) live: Arc<TunnelRegistry<Agent>>,
    /// Ownership of names in the cluster, if the engine is in one.
    pub(crate) membership: Option<Arc<etcd::Cluster>>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) tenancy: Tenancy,
    /// Checks of link passwords.
    pub(crate) link_passwords: PasswordChecks,
    /// The other engines, if this one is in a cluster.
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// Managed terminals.
    pub(crate) terminals: Arc<Sessions>,
    /// Browser sessions and challenges; `None` on a community engine.
    pub(crate) browsers: Option<Browsers>,
    pub(crate) namespace: Namespace,
    /// The engine's host, as the `CDN-Loop` field of forwarded requests names it (RFC 8586).
    pub(crate) cdn_loop_id: FieldValueBuf,
    /// Streams that were requested from agents and have not arrived.
    pub(crate) pending_streams: Arc<PendingStreams>,
    pub(crate) tls: crate::listen::TlsConfigs,
    /// Answers to the authority of the certificate, if the engine orders it.
    pub(crate) challenges: Option<Arc<acme::Challenges>>,
    /// The states of the engine's own certificates.
    pub(crate) certificates: acme::CertificateStates,
    pub(crate) handshakes: Handshakes,
    pub(crate) connections: Connections,
    pub(crate) source_visits: Arc<SourceVisits>,
    pub(crate) tcp_ports: TcpPorts,
    /// The countries of addresses, if a file of them is configured.
    pub(crate) countries: Option<Arc<Countries>>,
    pub(crate) access_log: Option<AccessLog>,
    /// The operator and the contact for reports of abuse, on pages.
    pub(crate) page_footer: PageFooter,
    /// Status of the link of a managed engine to its platform.
    pub(crate) link: Option<Arc<link::Status>>,
    /// Queue of a managed engine for reports to its platform.
    pub(crate) reports: Option<Reports>,
    pub(crate) metrics: EngineMetrics,
    pub(crate) shutdown: Shutdown,
    /// Cancelled shortly before the deadline of a drain: WebSockets are closed.
    pub(crate) closing: CancellationToken,
    /// Every task that serves a visitor; a drain waits for them.
    pub(crate) visits: TaskTracker,
    /// Connections to other servers (`tls.routes`); a drain waits for them last.
    pub(crate) routed: TaskTracker,
    /// Every task that serves an agent.
    pub(crate) agents: TaskTracker,
    /// Cancelled when the visits are over: agents are disconnected last.
    pub(crate) agents_stop: CancellationToken,
    /// The Engine API, for connections to the base host.
    pub(crate) api: axum::Router,
    pub(crate) workers: OnceLock<Box<[Arc<Worker>]>>,
    /// Bound address of the TLS listener, with port 0 resolved.
    pub(crate) tls_addr: OnceLock<SocketAddr>,
}

impl Core {
    /// The workers, in the order of their index; empty only before the engine has started.
    pub(crate) fn workers(&self) -> &[Arc<Worker>] {
        self.workers
            .get()
            .map(|workers| &**workers)
            .unwrap_or_default()
    }

    /// The project whose engine address this host is, in lower case (EN-10).
    pub(crate) fn project_at(&self, host: &str) -> Option<Arc<Project>> {
        match &self.tenancy {
            Tenancy::Community(project) => {
                (host == self.namespace.base().as_str()).then(|| Arc::clone(project))
            }
            Tenancy::Managed(directory) => directory.project_at(self.namespace.label_of(host)?),
        }
    }

    /// Returns true if a host name, in lower case, belongs to the engine and not to a tunnel. These
    /// are its base host and, on a managed engine, every name directly below it, which belong to
    /// projects.
    pub(crate) fn is_own_name(&self, host: &str) -> bool {
        host == self.namespace.base().as_str()
            || (self.tenancy.directory().is_some() && self.namespace.label_of(host).is_some())
    }

    /// True if the engine may serve the names of its tunnels. In a cluster this ends some time after
    /// the last contact with the store, because other engines may assign the names then.
    pub(crate) fn serves_names(&self) -> bool {
        let membership = self.membership.as_ref();
        membership.is_none_or(|membership| membership.serves())
    }

    /// Returns true if a host name is in use, held or remembered, so that it must not be drawn for
    /// another owner.
    pub(crate) fn is_reserved_name(&self, hostname: &Hostname) -> bool {
        let membership = self.membership.as_ref();
        let is_held = |membership: &Arc<etcd::Cluster>| {
            membership.is_held(&ownership::Name::of_host(hostname.as_str()))
        };
        self.live.is_reserved_name(hostname) || membership.is_some_and(is_held)
    }

    /// Destination of a host name, in lower case: a tunnel of this engine, or one of another engine of
    /// the cluster.
    pub(crate) fn route(&self, hostname: &str) -> Route<Agent> {
        let here = self.live.route(hostname);
        if matches!(here, Route::Online(_)) {
            return here;
        }
        let cluster = self.cluster.as_ref();
        let elsewhere = cluster.and_then(|cluster| cluster.route(hostname, &self.tenancy));
        elsewhere.unwrap_or(here)
    }

    /// Any tunnel with this host name, as [`TunnelRegistry::any_tunnel_at`], also at other engines.
    pub(crate) fn any_tunnel_at(&self, hostname: &str) -> Option<Arc<LiveTunnel<Agent>>> {
        let here = self.live.any_tunnel_at(hostname);
        here.or_else(
            || match self.cluster.as_ref()?.route(hostname, &self.tenancy)? {
                Route::Online(tunnel) => Some(tunnel),
                Route::Offline | Route::Unknown => None,
            },
        )
    }

    /// Another tunnel with the same name, as [`TunnelRegistry::failover_target`]: at another engine, if the
    /// failed one is at another engine.
    pub(crate) fn failover_target(
        &self,
        failed: &LiveTunnel<Agent>,
        admits: impl Fn(&LiveTunnel<Agent>) -> bool,
    ) -> Option<Arc<LiveTunnel<Agent>>> {
        if !failed.agent.is_peer() {
            return self.live.failover_target(failed, admits);
        }
        let other = self
            .cluster
            .as_ref()?
            .failover_target(failed, &self.tenancy);
        other.filter(|other| admits(other))
    }

    /// True if the tunnel's project no longer has its custom domain. The agent's session closes the
    /// tunnel, and a visit that it admits until then would not be authorised again.
    pub(crate) fn has_lost_name(&self, tunnel: &LiveTunnel<Agent>) -> bool {
        let (properties, project) = (&tunnel.view.properties, &tunnel.project.id);
        self.namespace.has_lost_name(properties, project)
    }

    /// True if an operator has taken down a host name, in lower case, of a project, also without an
    /// online tunnel.
    pub(crate) fn is_taken_down(&self, host: &str) -> bool {
        let Some(directory) = self.tenancy.directory() else {
            return false;
        };
        let project = self.namespace.classify(host).and_then(|name| match &name {
            PublishedName::Label(_) => directory.project_at(name.endpoint()?),
            PublishedName::Domain(domain) => directory.project(&domain.project),
        });
        project.is_some_and(|project| project.state().is_taken_down(host))
    }

    /// The country of a visitor of a tunnel, if it is known. It is only looked up if the tunnel or
    /// its project restricts countries.
    pub(crate) fn country_for(
        &self,
        tunnel: &LiveTunnel<Agent>,
        visitor: IpAddr,
    ) -> Option<Country> {
        let countries = self.countries.as_ref()?;
        let needed = tunnel.policy.asks_country() || tunnel.project.state().policy.geo.is_some();
        needed.then(|| countries.country_of(visitor)).flatten()
    }

    /// Returns true if the engine has the state that it serves: false on a managed engine that has
    /// never received a snapshot.
    pub(crate) fn has_platform_snapshot(&self) -> bool {
        let directory = self.tenancy.directory();
        directory.is_none_or(|directory| directory.platform().is_some())
    }

    /// Returns true if agents of a previous process may still be reconnecting, so that a name
    /// without an agent is not known to be unused.
    pub(crate) fn is_starting(&self) -> bool {
        let since = self.handover.serving_since();
        since.is_none_or(|since| since.elapsed() < self.config.timeouts.startup_grace)
    }

    /// Visits that are being served, by all workers.
    pub(crate) fn visits_in_flight(&self) -> usize {
        let workers = self.workers().iter();
        workers
            .map(|worker| worker.active.load(Ordering::Relaxed))
            .sum()
    }

    /// Current values of the gauges.
    pub(crate) fn gauges(&self) -> Gauges {
        Gauges {
            streams: self.visits_in_flight(),
            pooled: self.pending_streams.pool_stats(),
        }
    }

    /// Closes the idle upstream connections of tunnels that are gone, here and at the other engines of
    /// the cluster. A leaving agent waits for its streams, and these connections are not used again.
    pub(crate) fn forget_upstreams(&self, tunnels: Vec<TunnelId>) {
        if let Some(cluster) = &self.cluster {
            cluster.announce_ended(&tunnels);
        }
        self.drop_upstreams(tunnels);
    }

    /// Closes the idle upstream connections of this engine to tunnels that are gone. Each worker
    /// closes its own.
    pub(crate) fn drop_upstreams(&self, tunnels: Vec<TunnelId>) {
        let tunnels: Arc<[TunnelId]> = tunnels.into();
        for worker in self.workers() {
            let (target, tunnels) = (Arc::clone(worker), Arc::clone(&tunnels));
            worker.runtime.spawn(async move {
                for tunnel in &*tunnels {
                    let closed = target.upstreams.lock().remove_tunnel(*tunnel);
                    drop(closed);
                }
            });
        }
    }

    /// Closes the idle upstream connections through other engines: one of them is stopping or lost.
    /// There are few such events, so those through the remaining engines are closed as well. Each
    /// worker closes its own.
    pub(crate) fn drop_forwarded_upstreams(&self) {
        for worker in self.workers() {
            let target = Arc::clone(worker);
            worker.runtime.spawn(async move {
                let live = &target.core.live;
                let is_elsewhere = |tunnel: &TunnelId| !live.is_online(tunnel);
                let closed = target.upstreams.lock().remove_tunnels(is_elsewhere);
                drop(closed);
            });
        }
    }

    /// The state that decisions about visitors are based on, at this moment.
    pub(crate) fn auth_context(&self) -> AuthContext<'_> {
        AuthContext {
            tokens: &self.tokens,
            tenancy: &self.tenancy,
            seals: self.browsers.as_ref().map(|browsers| &browsers.seals),
            now: self.unix_seconds(),
        }
    }

    /// Seconds since the epoch, by the engine's clock.
    pub(crate) fn unix_seconds(&self) -> i64 {
        self.clock.now().as_second()
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("host", &self.config.host)
            .finish_non_exhaustive()
    }
}

/// The state of one core: its runtime, and the connections that only its tasks use. One thread
/// takes the locks here, except for the moments in which another worker hands something over.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) runtime: Handle,
    pub(crate) core: Arc<Core>,
    /// Cancelled when the engine drains. Each worker has its own token, because waiting on a shared
    /// one would make the cores contend for its lock.
    pub(crate) drain: CancellationToken,
    /// The worker's own token of [`Core::closing`].
    pub(crate) closing: CancellationToken,
    /// Connections to services that wait for the next request.
    pub(crate) upstreams: Mutex<UpstreamPool>,
    /// Visits that are closed when the authorization of their visitor ends.
    pub(crate) active_visits: ActiveVisits,
    /// Visits that are being served here; for metrics.
    pub(crate) active: AtomicUsize,
}

impl Worker {
    /// Serves a visitor on this worker; a drain waits for it.
    pub(crate) fn spawn<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.core.visits.spawn_on(future, &self.runtime);
    }

    /// Closes connections that have been idle too long. Called periodically. They are shut down
    /// cleanly, so that the agent does not mistake an unused connection for a broken one.
    pub(crate) fn trim(&self, now: Instant) {
        let idle = self.core.config.timeouts.http_idle;
        let closed = self.upstreams.lock().trim(now, idle);
        for waited in closed {
            self.runtime.spawn(waited.close());
        }
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}
