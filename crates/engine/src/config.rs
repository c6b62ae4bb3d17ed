//! The engine's configuration: the format of the file, and the checked values that the engine works
//! with. The rest of the engine does not use the file.
//!
//! `file` defines the format, `check` turns it into an [`EngineConfig`], and `inspect` finds
//! settings that are allowed but probably a mistake. `docs/configuration.md` is generated from
//! `file`.

mod api_rates;
mod check;
mod cluster;
mod domains;
mod file;
mod inspect;
mod keys;
mod pages;
mod recordings;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
mod tls_routes;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use credentials::{AssertionKey, Keyring, Secret};
use daemon::config::{ConfigError, ConfigErrors, SecretString, StateDir};
use daemon::logs::Level;
use daemon::metrics::MetricsConfig;
use daemon::tls::CertFiles;
use ipnet::IpNet;

pub use daemon::config::Warning;
pub use link::{ControlPlane, ProbeError};

pub use self::api_rates::ApiRates;
use self::check::NamedFiles;
pub use self::cluster::{ClusterConfig, StoreConfig};
pub use self::domains::DomainConfig;
use crate::browser::Seals;

pub use self::pages::{Logo, Pages};
pub use self::recordings::{RecordingLocation, RecordingPolicy, Recordings, S3};
pub use self::tls_routes::{TlsRoute, TlsRoutes};

/// The configuration that an engine runs with. Each value is checked, and so are their
/// combinations.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The base host in lower case. Agents connect to it; published names are `*.t.<host>`.
    pub host: String,
    /// Log level.
    pub log_level: Level,
    /// The plain listener, which only redirects; `None` if there is none.
    pub http: Option<SocketAddr>,
    /// The TLS listener: agents, the Engine API, published names.
    pub tls: SocketAddr,
    /// Server names on the same port that other servers serve.
    pub tls_routes: TlsRoutes,
    /// Files of the certificate of `host` and `*.t.<host>`; `None` if `acme` is the only source.
    pub certificate: Option<CertFiles>,
    /// The certificate that the engine orders itself.
    pub acme: Option<acme::Settings>,
    /// Custom domains of a community engine, each once.
    pub domains: Vec<DomainConfig>,
    /// Issuer of the accepted tokens, which also determines the kind of engine.
    pub auth: Auth,
    /// The metrics listener.
    pub metrics: MetricsConfig,
    /// Time limits.
    pub timeouts: Timeouts,
    /// The ports for published `tcp` tunnels; `None`: such tunnels are refused.
    pub tcp_ports: Option<RangeInclusive<u16>>,
    /// Peers whose PROXY protocol headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Destination of the access log; `None`: it is not written.
    pub access_log: Option<AccessLogConfig>,
    /// Limits of one engine.
    pub limits: Limits,
    /// The database of the countries of addresses.
    pub geoip_file: Option<PathBuf>,
    /// True if rstream's spellings are accepted, and sent in addition to ours.
    pub compat_rstream: bool,
    /// Storage of recordings of managed terminals.
    pub recordings: Recordings,
    /// The operator on pages of the edge.
    pub pages: Pages,
    /// The cluster of the engine, if it is in one.
    pub cluster: Option<ClusterConfig>,
}

impl EngineConfig {
    /// Reads `file` and then the environment (`env` is all of it), and checks the result.
    ///
    /// # Errors
    /// All errors, each with its key and the place where it was written.
    pub fn load(
        file: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        Self::load_with(file, env, |_, _| {})
    }

    /// [`Self::load`] and [`Self::inspect`], with the errors of both.
    ///
    /// # Errors
    /// All errors, each with its key and the place where it was written.
    pub fn load_inspected(
        file: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
        now: i64,
    ) -> Result<(Self, Vec<Warning>), ConfigErrors> {
        let mut warnings = Vec::new();
        let config = Self::load_with(file, env, |files, errors| {
            inspect::files(files, now, &mut warnings, errors);
        })?;
        inspect::settings(&config, &mut warnings);
        let mut errors = ConfigErrors::default();
        inspect::cluster(&config, now, &mut warnings, &mut errors);
        errors.finish(Some((config, warnings)))
    }

    fn load_with(
        file: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
        inspect: impl FnOnce(&NamedFiles<'_>, &mut ConfigErrors),
    ) -> Result<Self, ConfigErrors> {
        let env: Vec<_> = env.into_iter().collect();
        let state_dir = StateDir::of_environment(&env);
        daemon::config::load(file, env, |file| {
            let mut errors = ConfigErrors::default();
            let config = check::engine(file, state_dir, &mut errors, inspect);
            errors.finish(config)
        })
    }

    /// Settings that are allowed but probably a mistake, for the start, `--check` and `doctor`.
    /// `now` is in seconds since 1970. Reads the files that the configuration names.
    ///
    /// # Errors
    /// Files cannot be used: the engine would not start.
    pub fn inspect(&self, now: i64) -> Result<Vec<Warning>, ConfigErrors> {
        let (mut warnings, mut errors) = (Vec::new(), ConfigErrors::default());
        let files = NamedFiles {
            host: Some(&self.host),
            certificate: self.certificate.as_ref(),
            auth: Some(&self.auth),
            geoip_file: self.geoip_file.as_deref(),
            acme: self.acme.as_ref(),
            domains: &self.domains,
        };
        inspect::files(&files, now, &mut warnings, &mut errors);
        inspect::cluster(self, now, &mut warnings, &mut errors);
        inspect::settings(self, &mut warnings);
        errors.finish(Some(warnings))
    }

    /// The platform of a managed engine.
    pub fn platform(&self) -> Option<&ControlPlane> {
        match &self.auth {
            Auth::Platform(platform) => Some(platform),
            Auth::Keys(_) => None,
        }
    }
}

/// The wildcards of an engine's certificate: for published names, and for the endpoints of projects.
pub(crate) fn wildcards(host: &str, is_managed: bool) -> Vec<String> {
    let mut names = vec![format!("*.t.{host}")];
    if is_managed {
        names.push(format!("*.{host}"));
    }
    names
}

/// The JSON Schema of the file, for `svc engine --schema` and for editors.
pub fn schema() -> serde_json::Value {
    daemon::config::schema::<file::EngineFile>()
}

/// Issuer of the accepted tokens.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Tokens that these keys verify: a community engine.
    Keys(JwtAuth),
    /// Tokens of a platform, which also defines the projects and tunnels: a managed engine.
    Platform(ControlPlane),
}

/// The endpoint for connections to the platform. Reads the file of authorities.
pub(crate) fn endpoint(platform: &ControlPlane) -> Result<link::Endpoint, ConfigError> {
    platform.endpoint().map_err(|error| {
        let key = format!("control_plane.{}", error.setting());
        ConfigError::new(key, error.to_string())
    })
}

/// The keys for browsers' cookies and for assertions, derived from the current enrolment secret. A
/// secret that is replaced later takes effect at the next start, which then ends the existing
/// sessions.
pub(crate) fn edge_keys(platform: &ControlPlane) -> Result<(Seals, AssertionKey), ConfigError> {
    let failed = |problem: String| {
        let message = format!("{}: {problem}", platform.token_file.display());
        ConfigError::new("control_plane.token_file", message)
    };
    let text = std::fs::read_to_string(&platform.token_file);
    let text = text.map_err(|error| failed(error.to_string()))?;
    let secret = Secret::new(text.trim());
    let seals = Seals::derive(&secret).map_err(|error| failed(error.to_string()))?;
    let assertions = AssertionKey::derive(&secret).map_err(|error| failed(error.to_string()))?;
    Ok((seals, assertions))
}

/// The keys that verify tokens; there is at least one.
#[derive(Clone, Debug)]
pub struct JwtAuth {
    /// HS256 secrets, the current one first; two during a rotation.
    pub secrets: Vec<SecretString>,
    /// PEM files of public keys.
    pub public_keys: Vec<PathBuf>,
    /// Address of a JWK set.
    pub jwks_url: Option<http::Uri>,
}

impl JwtAuth {
    /// The keys in the configuration and in the files that it names, read now. Those of
    /// [`JwtAuth::jwks_url`] are fetched later over the network. `compat` is
    /// [`EngineConfig::compat_rstream`].
    ///
    /// # Errors
    /// A key file cannot be read, or contains no public key.
    pub fn keyring(&self, compat: bool) -> Result<Keyring, ConfigError> {
        keys::keyring(self, compat)
    }
}

/// Time limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time from the end of a request's head, or the last progress of its body, to the first byte
    /// of the response's head; then 504.
    pub stream_request: Duration,
    /// Longest time that a tunnel may request instead; at least `stream_request`.
    pub max_time_to_first_byte: Duration,
    /// Time that an HTTP connection may be idle, from a visitor or to an upstream.
    pub http_idle: Duration,
    /// Time that a visitor may read nothing of a response that is waiting to be sent.
    pub visitor_stall: Duration,
    /// Time that a drain may take before the remaining visits are closed.
    pub drain: Duration,
    /// Time after the start in which a name without an agent gets 503 instead of 404.
    pub startup_grace: Duration,
    /// The time limits without a key.
    pub fixed: FixedTimeouts,
}

/// Time limits without a key in the file. Only tests have other ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedTimeouts {
    /// Time for an update of the platform to arrive. Engines usually receive it within milliseconds,
    /// and within a second if another process of the platform made the change.
    pub update: Duration,
    /// Time that a new connection has for its first request when a drain starts: the request may be
    /// on its way already, and its client does not expect the close. It is a round trip on a very
    /// slow line.
    pub first_request: Duration,
    /// Time for the end of a WebSocket frame that is being sent when a drain closes a WebSocket and
    /// for the Close frames of both sides, and again for their disconnects: a round trip on a slow
    /// line.
    pub websocket_close: Duration,
    /// Time for an agent to open a stream: two round trips and a dial on a bad line.
    pub stream_open: Duration,
    /// Time after a failure in which only few visitors try a tunnel: the time that a service takes to
    /// restart.
    pub failing_tunnel: Duration,
}

impl Default for FixedTimeouts {
    fn default() -> Self {
        Self {
            update: Duration::from_secs(3),
            first_request: Duration::from_secs(2),
            websocket_close: Duration::from_secs(1),
            stream_open: Duration::from_secs(10),
            failing_tunnel: Duration::from_secs(5),
        }
    }
}

/// The access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogConfig {
    /// The file, or `-` for standard output.
    pub path: PathBuf,
    /// The format of a record.
    pub format: AccessLogFormat,
}

/// The format of a record of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// One JSON object per line.
    #[default]
    Json,
}

/// Limits of one engine. A request beyond a limit is refused immediately and never queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Agents that are connected at the same time.
    pub max_clients: usize,
    /// Tunnels that are online at the same time.
    pub max_tunnels: usize,
    /// Tunnels of one agent.
    pub max_tunnels_per_client: usize,
    /// Concurrent streams of one agent.
    pub max_streams_per_client: usize,
    /// Concurrent visits.
    pub max_streams: usize,
    /// Concurrent visits of one source over HTTP/2.
    pub max_streams_per_source: usize,
    /// Bytes that all streams together buffer for slow readers.
    pub max_buffered_bytes: usize,
    /// Concurrent watchers (SSE and WebSocket).
    pub max_watchers: usize,
    /// Requests to the Engine API per minute.
    pub api_rates: ApiRates,
    /// Share of clients, tunnels, streams and watchers that one project of a managed engine may
    /// have.
    pub project_share: QuotaPercent,
    /// Concurrent connections of visitors, agents and API clients; `None`: half of the descriptors.
    pub max_connections: Option<usize>,
    /// Concurrent connections of one source; `None`: an eighth of `max_connections`.
    pub max_connections_per_source: Option<usize>,
    /// Concurrent TLS handshakes of one source.
    pub max_handshakes_per_source: usize,
    /// Size of a request's head in bytes; a larger one gets 431.
    pub header_bytes: usize,
    /// Size of a request's target in bytes; a larger one gets 414.
    pub url_bytes: usize,
    /// Minimum average rate of a request while its body is being sent, in bytes per second; `None`:
    /// no minimum.
    pub min_body_rate: Option<NonZeroU32>,
}

/// A share of an engine's limit, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaPercent(pub usize);

impl QuotaPercent {
    /// The share of `most`, at least one.
    pub fn of(self, most: usize) -> usize {
        (most.saturating_mul(self.0) / 100).max(1)
    }
}
