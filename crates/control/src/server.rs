//! Start and stop of the platform.

use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use acme::{Certificates, OrderError};
use axum::Router;
use daemon::clock::{Clock, SystemClock};
use daemon::config::SecretString;
use daemon::descriptors::{InheritError, InheritedSockets};
use daemon::metrics::{MetricsError, MetricsServer, Readiness};
use daemon::shutdown::Shutdown;
use daemon::tls::TlsError;
use store::Store;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::billing::plans::{PlanService, PlanServiceError};
use crate::caller::SignatureCache;
use crate::config::Config;
use crate::domains::{self, Domains};
use crate::engines::{self, Engines};
use crate::forwarder::{EngineClientError, Forwarder};
use crate::http_api::listener;
use crate::http_api::listener::{ConnectionLimit, Layers, ProxyPeers};
use crate::http_api::plain;
use crate::http_api::rate_limit::RateLimiter;
use crate::keys::{KeyError, Keys, refresh};
use crate::logs::SearchLimit;
use crate::oauth::Oauth;
use crate::people::{People, PeopleError};
use crate::router::router;
use crate::runtime::clock_skew;
use crate::runtime::clock_skew::ClockSkew;
use crate::runtime::health::Health;
use crate::runtime::jobs;
use crate::runtime::jobs::Jobs;
use crate::runtime::metrics;
use crate::webhooks::{self, SenderError, Webhooks};

/// A running platform.
#[derive(Debug)]
pub struct RunningPlatform {
    address: SocketAddr,
    http: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    listeners: Vec<(&'static str, OwnedFd)>,
    removed_listeners: Vec<String>,
    task: JoinHandle<()>,
}

impl RunningPlatform {
    /// The address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the listener for plain HTTP, which redirects, if there is one.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The address of the metrics listener, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Takes copies of the listening sockets, with the names of their listeners, for the
    /// supervisor.
    pub fn take_listeners(&mut self) -> Vec<(&'static str, OwnedFd)> {
        std::mem::take(&mut self.listeners)
    }

    /// Names of inherited sockets that no listener uses any more.
    pub fn removed_listeners(&self) -> &[String] {
        &self.removed_listeners
    }

    /// Waits until it has stopped.
    pub async fn wait_until_stopped(self) {
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the listener ended unexpectedly");
        }
    }
}

/// Reasons that a platform does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The listener cannot be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address to listen on.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The sockets from the supervisor do not match the configuration.
    #[error(transparent)]
    Inherited(#[from] InheritError),
    /// The data directory cannot be created.
    #[error("{}: {source}", path.display())]
    DataDirectory {
        /// Path of the directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The second listener has no TLS and no header of a proxy, so it must stay on this machine.
    #[error(
        "{address} is not on loopback; bind the listener of `platform.local_listen_addr` to an \
         address such as 127.0.0.1:8081"
    )]
    LocalListener {
        /// The bound address.
        address: SocketAddr,
    },
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The plan service cannot be opened.
    #[error(transparent)]
    PlanService(#[from] PlanServiceError),
    /// The database cannot be opened.
    #[error("the database cannot be opened: {0}")]
    Database(#[from] store::Error),
    /// The metrics listener is refused (MX-3) or cannot listen.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No certificate can be ordered: its state or a file is unusable.
    #[error("`tls.acme`")]
    Orders(#[from] OrderError),
    /// The system refuses a thread.
    #[error("the thread for orders of certificates cannot be started")]
    Thread(#[source] io::Error),
    /// Passwords, mail, or the OpenID provider cannot be used.
    #[error(transparent)]
    People(#[from] PeopleError),
    /// The engines cannot be reached with the configured authorities.
    #[error(transparent)]
    EngineClient(#[from] EngineClientError),
    /// The sender of webhooks cannot be created.
    #[error(transparent)]
    Webhooks(#[from] SenderError),
}

/// Opens the state of a platform: the database, with automatic migrations, and then the keys in it.
pub async fn open(config: Config, clock: Arc<dyn Clock>) -> Result<Arc<App>, StartError> {
    let url = config.database_url.as_ref().map(SecretString::expose);
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&config.data_dir);
    made.map_err(|source| StartError::DataDirectory {
        path: config.data_dir.clone(),
        source,
    })?;
    let connections = config.database_connections;
    let (store, allowed) = Store::open_with(url, &config.data_dir, connections).await?;
    if let Some(allowed) = allowed {
        tracing::warn!(
            connections = allowed,
            "PostgreSQL allows fewer connections than configured; the lower limit is used"
        );
    }
    // A remote database server has its own disk.
    let embedded = store.is_embedded().then(|| config.data_dir.clone());
    let keys = Keys::open(&config, &store, clock.now()).await?;
    let people = People::open(&config)?;
    let shop = PlanService::open(&config, &keys)?;
    shop.publish(&store).await?;
    let engines = Engines::open(&config)?;
    let forwarder = Forwarder::open(&config)?;
    let webhooks = Webhooks::open(&config.webhooks)?;
    let oauth = Oauth::open(&config.webhooks)?;
    Ok(Arc::new(App {
        rate_limiter: RateLimiter::new(&config.limits, Arc::clone(&clock)),
        domains: Domains::new(&config.domains),
        store,
        config,
        clock,
        keys,
        people,
        plan_service: shop,
        searches: SearchLimit::default(),
        clock_skew: ClockSkew::default(),
        health: Health::new(embedded),
        jobs: Jobs::default(),
        engines,
        forwarder,
        webhooks,
        signature_cache: SignatureCache::default(),
        oauth,
    }))
}

/// Opens a platform and serves it.
pub async fn start(config: Config, shutdown: Shutdown) -> Result<RunningPlatform, StartError> {
    let listen = config.listen;
    let app = open(config, Arc::new(SystemClock)).await?;
    let listener = listen_at(&mut InheritedSockets::none(), listen).await?;
    start_on(app, listener, shutdown).await
}

/// The inherited listener of an address, or a new one.
///
/// # Errors
/// The address cannot be bound.
pub async fn listen_at(
    inherited: &mut InheritedSockets,
    address: SocketAddr,
) -> Result<TcpListener, StartError> {
    let failed = |source| StartError::Listen { address, source };
    let taken = inherited.take_listeners(address).map_err(failed)?;
    match taken.into_iter().next() {
        Some(listener) => TcpListener::from_std(listener).map_err(failed),
        None => TcpListener::bind(address).await.map_err(failed),
    }
}

/// Serves on an existing listener, for callers that need its port before the configuration.
pub async fn start_on(
    app: Arc<App>,
    listener: TcpListener,
    shutdown: Shutdown,
) -> Result<RunningPlatform, StartError> {
    let routes = router(Arc::clone(&app));
    start_routes(app, routes, BoundListeners::from(listener), shutdown).await
}

/// The bound listeners of a platform.
#[derive(Debug)]
pub struct BoundListeners {
    /// Listeners of `platform.listen_addr`, such as both loopback addresses. At least one.
    pub public: Vec<TcpListener>,
    /// The listener of `platform.local_listen_addr`, if it is already bound. It must be on
    /// loopback, as that of the configuration.
    pub local: Option<TcpListener>,
}

impl From<TcpListener> for BoundListeners {
    fn from(listener: TcpListener) -> Self {
        Self {
            public: vec![listener],
            local: None,
        }
    }
}

/// Serves the routes of [`crate::router::router_with`] on existing listeners.
/// [`RunningPlatform::address`] is the address of the first public one.
pub async fn start_routes(
    app: Arc<App>,
    routes: Router,
    listeners: BoundListeners,
    shutdown: Shutdown,
) -> Result<RunningPlatform, StartError> {
    let sockets = (listeners, InheritedSockets::none());
    let mut running = start_inheriting(app, routes, sockets, shutdown).await?;
    // A copy would keep a listener open beyond the drain.
    running.listeners.clear();
    Ok(running)
}

/// Compares the clocks before anything is served. Later a task does it.
async fn measure_clock_skew(app: &App) {
    if let Err(error) = app.clock_skew.measure(&app.store, &*app.clock).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the clocks could not be compared"
        );
    }
}

/// As [`start_routes`], with inherited sockets for the other listeners.
pub async fn start_inheriting(
    app: Arc<App>,
    routes: Router,
    (listeners, mut inherited): (BoundListeners, InheritedSockets),
    shutdown: Shutdown,
) -> Result<RunningPlatform, StartError> {
    let listen = app.config.listen;
    let BoundListeners { public, local } = listeners;
    let address = match public.first() {
        Some(first) => first.local_addr(),
        None => Err(io::ErrorKind::NotFound.into()),
    };
    let unusable = |source| StartError::Listen {
        address: listen,
        source,
    };
    let address = address.map_err(unusable)?;
    let readiness = Readiness::default();
    // The recorder is installed before anything is counted. Counts without a recorder are lost.
    // Without a metrics listener there is no recorder, because no scraper would empty it.
    let mut kept = KeptListeners::default();
    let metrics = serve_metrics(&app.config, &readiness, &mut inherited, &mut kept).await?;
    let certificates = app.config.tls.as_ref();
    let certificates = certificates.map(|tls| tls.open::<StartError>(&app.clock));
    let certificates = certificates.transpose()?;
    let layers = layers(&app.config, certificates.as_ref())?;
    let local = local_listener(local, &app.config, &mut inherited).await?;
    let plain = plain_listener(&app.config, certificates.as_ref(), &mut inherited).await?;
    let plain_listeners = plain.iter().map(|(listener, _)| ("http", listener));
    let others = local.iter().map(|listener| ("local", listener));
    let public_listeners = public.iter().map(|listener| ("platform", listener));
    for (name, listener) in public_listeners.chain(others).chain(plain_listeners) {
        kept.keep(name, listener).map_err(unusable)?;
    }
    let removed_listeners = inherited.finish()?;
    let http = plain.as_ref().map(|(listener, _)| listener.local_addr());
    let http = http.transpose().map_err(unusable)?;
    measure_clock_skew(&app).await;
    app.health.set_drain(shutdown.drain().clone());
    let notice = app.config.drain_period;
    let limit = ConnectionLimit::new(&app.config.limits, &app.config.trusted_proxies);
    let metrics_address = metrics.as_ref().map(MetricsServer::local_addr);
    // Validations that start before the listeners are served wait in their queues.
    let stop = shutdown.drain().child_token();
    let orders = certificates.map(|certificates| certificates.start_orders(stop));
    let orders = orders.transpose().map_err(StartError::Thread)?.flatten();
    let task = tokio::spawn(async move {
        let mut background = background_tasks(&app, shutdown.drain());
        let drain = shutdown.drain().clone();
        background.spawn(metrics::watch(Arc::clone(&app), readiness, orders, drain));
        let public = public
            .into_iter()
            .map(|listener| (listener, layers.clone(), routes.clone()));
        let local = local.map(|listener| (listener, Layers::default(), routes.clone()));
        let plain = plain.map(|(listener, routes)| (listener, Layers::default(), routes));
        let serving: JoinSet<()> = public
            .chain(local)
            .chain(plain)
            .map(|(listener, layers, routes)| {
                let stop = (shutdown.clone(), notice);
                listener::serve(listener, layers, routes, Arc::clone(&limit), stop)
            })
            .collect();
        serving.join_all().await;
        // A batch of a job takes moments. A second signal does not wait for it.
        tokio::select! {
            () = join_all(&mut background) => {}
            () = shutdown.hard().cancelled() => background.shutdown().await,
        }
        // Links end with the drain. A link that waits for the database ends after that wait.
        app.engines.wait_for_links().await;
        // Mails in flight are sent. After that the database is not needed any more.
        app.people.finish().await;
        app.store.close().await;
        // The metrics end last, so that the drain can be observed.
        if let Some(metrics) = metrics {
            metrics.stop().await;
        }
    });
    Ok(RunningPlatform {
        address,
        http,
        metrics: metrics_address,
        listeners: kept.0,
        removed_listeners,
        task,
    })
}

/// Copies of listening sockets, with the names of their listeners.
#[derive(Default)]
struct KeptListeners(Vec<(&'static str, OwnedFd)>);

impl KeptListeners {
    fn keep(&mut self, name: &'static str, listener: &TcpListener) -> io::Result<()> {
        self.0.push((name, listener.as_fd().try_clone_to_owned()?));
        Ok(())
    }
}

/// The metrics listener; `None` if none is configured (MX-1).
async fn serve_metrics(
    config: &Config,
    readiness: &Readiness,
    inherited: &mut InheritedSockets,
    kept: &mut KeptListeners,
) -> Result<Option<MetricsServer>, StartError> {
    // MX-3 is checked before anything is bound.
    config.metrics.check()?;
    let Some(address) = config.metrics.listener() else {
        return Ok(None);
    };
    let recorder = daemon::metrics::recorder()?;
    metrics::begin();
    let failed = |source| MetricsError::Bind { address, source };
    let taken = inherited.take_listeners(address).map_err(failed)?;
    let listener = match taken.into_iter().next() {
        Some(listener) => TcpListener::from_std(listener).map_err(failed)?,
        None => TcpListener::bind(address).await.map_err(failed)?,
    };
    kept.keep("metrics", &listener).map_err(failed)?;
    let begin = CancellationToken::new();
    begin.cancel();
    let readiness = readiness.clone();
    let server = daemon::metrics::serve_on(&config.metrics, listener, recorder, readiness, begin)?;
    Ok(Some(server))
}

/// The tasks of the platform that serve no listener, until the drain.
fn background_tasks(app: &Arc<App>, drain: &CancellationToken) -> JoinSet<()> {
    let mut background = JoinSet::new();
    background.spawn(jobs::run(Arc::clone(app), drain.clone()));
    background.spawn(webhooks::run(Arc::clone(app), drain.clone()));
    background.spawn(domains::run(Arc::clone(app), drain.clone()));
    background.spawn(clock_skew::run(Arc::clone(app), drain.clone()));
    background.spawn(refresh::run(Arc::clone(app), drain.clone()));
    background.spawn(engines::listen(Arc::clone(app), drain.clone()));
    background
}

/// The protocols of the public listeners.
fn layers(config: &Config, certificates: Option<&Certificates>) -> Result<Layers, TlsError> {
    let proxies = config
        .proxy_protocol
        .then(|| Arc::new(ProxyPeers::new(&config.trusted_proxies)));
    Ok(Layers {
        tls: certificates.map(listener::tls).transpose()?,
        proxies,
    })
}

/// The listener of `platform.local_listen_addr`, which may be bound already.
async fn local_listener(
    bound: Option<TcpListener>,
    config: &Config,
    inherited: &mut InheritedSockets,
) -> Result<Option<TcpListener>, StartError> {
    let listener = match (bound, config.local_listen) {
        (Some(bound), _) => bound,
        (None, Some(address)) => listen_at(inherited, address).await?,
        (None, None) => return Ok(None),
    };
    let address = listener.local_addr();
    let address = address.map_err(|source| StartError::Listen {
        address: config.local_listen.unwrap_or(config.listen),
        source,
    })?;
    if !address.ip().is_loopback() {
        return Err(StartError::LocalListener { address });
    }
    Ok(Some(listener))
}

/// The listener for plain HTTP, with its routes.
async fn plain_listener(
    config: &Config,
    certificates: Option<&Certificates>,
    inherited: &mut InheritedSockets,
) -> Result<Option<(TcpListener, Router)>, StartError> {
    let address = config.tls.as_ref().and_then(|tls| tls.http_listen);
    let Some(address) = address else {
        return Ok(None);
    };
    let challenges = certificates.and_then(Certificates::challenges);
    let routes = plain::routes(config.base_url.clone(), challenges);
    Ok(Some((listen_at(inherited, address).await?, routes)))
}

/// Waits for tasks that were requested to end.
async fn join_all(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a task ended unexpectedly");
        }
    }
}

/// Copies the embedded database to a new file, even while it is in use.
///
/// # Errors
/// The database is not the embedded one, does not exist, or cannot be copied.
pub async fn backup(
    database_url: Option<&SecretString>,
    data_dir: &Path,
    target: &Path,
) -> Result<(), store::Error> {
    Store::backup_at(database_url.map(SecretString::expose), data_dir, target).await
}

/// Replaces the embedded database with a backup. No platform may be running on it.
///
/// # Errors
/// The database is not the embedded one or is in use, or the file is not a backup.
pub async fn restore(
    database_url: Option<&SecretString>,
    data_dir: &Path,
    source: &Path,
) -> Result<(), store::Error> {
    Store::restore_at(database_url.map(SecretString::expose), data_dir, source).await
}
