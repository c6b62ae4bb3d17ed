//! What all workers of an engine share, and what each has for itself.

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
use types::tunnel::Country;

use crate::access::{AuthContext, Tenancy, Tokens};
use crate::agents::{Agent, PendingStreams};
use crate::browser::Browsers;
use crate::clock::Clock;
use crate::config::EngineConfig;
use crate::directory::Project;
use crate::edge::UpstreamPool;
use crate::edge::revocation::ActiveVisits;
use crate::geo::Countries;
use crate::limits::SourceVisits;
use crate::listen::{Connections, Handshakes, TcpPorts};
use crate::live::{Live, LiveTunnel, Namespace};
use crate::managed::Reports;
use crate::metrics::{EngineMetrics, Gauges};
use crate::webtty::Sessions;

/// The engine's parts, made once at the start. Nothing here is locked on the way of a request but
/// what [`Worker`] holds for its own core.
pub(crate) struct Core {
    pub(crate) config: EngineConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) live: Arc<Live<Agent>>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) tenancy: Tenancy,
    /// Managed terminals.
    pub(crate) terminals: Arc<Sessions>,
    /// Browser sessions and challenges; `None` on a community engine.
    pub(crate) browsers: Option<Browsers>,
    pub(crate) namespace: Namespace,
    /// The engine's host, as requests that go on tell it (RFC 8586).
    pub(crate) node: FieldValueBuf,
    pub(crate) arrivals: PendingStreams,
    pub(crate) tls: crate::listen::TlsConfigs,
    pub(crate) handshakes: Handshakes,
    pub(crate) connections: Connections,
    pub(crate) source_visits: Arc<SourceVisits>,
    pub(crate) tcp_ports: TcpPorts,
    /// The countries of addresses, where there is a file of them.
    pub(crate) countries: Option<Arc<Countries>>,
    pub(crate) access_log: Option<AccessLog>,
    /// Where a managed engine puts what its platform is to know.
    pub(crate) reports: Option<Reports>,
    pub(crate) metrics: EngineMetrics,
    pub(crate) shutdown: Shutdown,
    /// Every task that serves a visitor; a drain waits for them.
    pub(crate) visits: TaskTracker,
    /// Every task that serves an agent.
    pub(crate) agents: TaskTracker,
    /// Cancelled when the visits are over: the agents are let go last.
    pub(crate) agents_stop: CancellationToken,
    /// The Engine API, for connections to the base host.
    pub(crate) api: axum::Router,
    pub(crate) workers: OnceLock<Box<[Arc<Worker>]>>,
    /// Where the TLS listener really is, port 0 resolved.
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

    /// Whether a host name, in lower case, is the engine's own and no tunnel's: its base, and on a
    /// managed engine every name directly below, where projects are.
    pub(crate) fn is_own_name(&self, host: &str) -> bool {
        host == self.namespace.base().as_str()
            || (self.tenancy.directory().is_some() && self.namespace.label_of(host).is_some())
    }

    /// Where a visitor of a tunnel is, as far as it is known. Looked up only where the tunnel or its
    /// project asks for it.
    pub(crate) fn country_for(
        &self,
        tunnel: &LiveTunnel<Agent>,
        visitor: IpAddr,
    ) -> Option<Country> {
        let countries = self.countries.as_ref()?;
        let asked = tunnel.policy.asks_country() || tunnel.project.state().policy.geo.is_some();
        asked.then(|| countries.of(visitor)).flatten()
    }

    /// Whether it is known what is served here: a managed engine that was never told knows nothing.
    pub(crate) fn has_platform_snapshot(&self) -> bool {
        let directory = self.tenancy.directory();
        directory.is_none_or(|directory| directory.platform().is_some())
    }

    /// Visits that are being served, by all workers.
    pub(crate) fn visits_under_way(&self) -> usize {
        let workers = self.workers().iter();
        workers
            .map(|worker| worker.active.load(Ordering::Relaxed))
            .sum()
    }

    /// What the gauges of the metrics say.
    pub(crate) fn gauges(&self) -> Gauges {
        Gauges {
            streams: self.visits_under_way(),
            pooled: self.arrivals.pooled(),
        }
    }

    /// Closes the connections that wait for the next request of tunnels that are over: an agent
    /// that leaves waits for its streams, and nobody uses these again. Each worker closes its own.
    pub(crate) fn forget_upstreams(&self, tunnels: Vec<TunnelId>) {
        let tunnels: Arc<[TunnelId]> = tunnels.into();
        for worker in self.workers() {
            let (at, tunnels) = (Arc::clone(worker), Arc::clone(&tunnels));
            worker.runtime.spawn(async move {
                for tunnel in &*tunnels {
                    let out = at.upstreams.lock().forget(*tunnel);
                    drop(out);
                }
            });
        }
    }

    /// What decisions about visitors stand on, now.
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

/// One core's share: its runtime, and the connections that only its tasks use. The locks here are
/// taken by one thread, but for the moments in which another worker hands something over.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) runtime: Handle,
    pub(crate) core: Arc<Core>,
    /// Cancelled when the engine drains. A token of the worker's own: waiting on one that all
    /// share would make the cores wait for each other.
    pub(crate) drain: CancellationToken,
    /// Connections to services that wait for the next request.
    pub(crate) upstreams: Mutex<UpstreamPool>,
    /// Visits that end when what let them in ends.
    pub(crate) holds: ActiveVisits,
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

    /// Closes what has been idle too long. Called every now and then. In order, so that the agent
    /// does not take a connection that nobody needs for one that broke.
    pub(crate) fn trim(&self, now: Instant) {
        let idle = self.core.config.timeouts.http_idle;
        let out = self.upstreams.lock().trim(now, idle);
        for waited in out {
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
