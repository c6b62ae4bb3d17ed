//! The engine's configuration: the file's shape, and the checked values that the engine works
//! with. Nothing else in the engine sees the file.
//!
//! `file` is what may be written, `check` turns it into an [`EngineConfig`], `inspect` finds what is
//! allowed and yet probably a mistake. `docs/configuration.md` is made from `file`.

mod check;
mod file;
mod inspect;
mod keys;
mod recordings;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use credentials::{Keyring, Secret};
use daemon::config::{ConfigError, SecretString, StateDir};
use daemon::logs::Level;
use daemon::metrics::MetricsConfig;
use daemon::tls::CertFiles;
use ipnet::IpNet;

use crate::api::ApiRates;
use crate::browser::Seals;

pub use self::recordings::{RecordingPlace, RecordingPolicy, Recordings, S3};

/// What an engine runs with. Every value is checked, and so is what the values say together.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The base host in lower case: where agents connect; published names are `*.t.<host>`.
    pub host: String,
    /// How much is logged.
    pub log_level: Level,
    /// The plain listener, which only redirects; `None`: there is none.
    pub http: Option<SocketAddr>,
    /// The TLS listener: agents, the Engine API, published names.
    pub tls: SocketAddr,
    /// The certificate of `host` and `*.t.<host>`.
    pub certificate: CertFiles,
    /// Whose tokens are accepted, and with that which kind of engine this is.
    pub auth: Auth,
    /// The metrics listener.
    pub metrics: MetricsConfig,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// The ports that published `tcp` tunnels get; `None`: such tunnels are refused.
    pub tcp_ports: Option<RangeInclusive<u16>>,
    /// Peers that speak PROXY protocol to the listeners and are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Where the access log goes; `None`: it is not written.
    pub access_log: Option<AccessLogConfig>,
    /// What one engine holds at most.
    pub limits: Limits,
    /// The database of the location of addresses.
    pub geoip_file: Option<PathBuf>,
    /// Whether the other brand's spellings are accepted and sent beside ours.
    pub compat_rstream: bool,
    /// Where recordings of managed terminals are kept.
    pub recordings: Recordings,
}

impl EngineConfig {
    /// Reads `file` and then the environment (`env` is all of it), and checks the whole.
    ///
    /// # Errors
    /// The first thing that is wrong, with its key and where it was written.
    pub fn load(
        file: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let env: Vec<_> = env.into_iter().collect();
        let state_dir = StateDir::of_environment(&env);
        daemon::config::load_checked(file, env, |file| check::engine(file, state_dir))
    }

    /// What is allowed and yet probably a mistake, for start, `--check` and `doctor`. `now` is in
    /// seconds since 1970. Reads the files that the configuration names.
    ///
    /// # Errors
    /// A file that is named cannot be used: the engine would not start.
    pub fn inspect(&self, now: i64) -> Result<Vec<Warning>, ConfigError> {
        inspect::engine(self, now)
    }
}

/// The JSON Schema of the file, for `svc engine --schema` and for editors.
pub fn schema() -> serde_json::Value {
    daemon::config::schema::<file::EngineFile>()
}

/// Something that an operator should look at; the engine starts all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The dotted key.
    pub key: &'static str,
    /// A sentence.
    pub message: String,
}

/// Whose tokens are accepted.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Those that these keys verify: a community engine.
    Keys(JwtAuth),
    /// Those of a platform, which also says what is served: a managed engine.
    Platform(ControlPlane),
}

/// The platform that a managed engine follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// Its address: https, or http on loopback.
    pub url: String,
    /// The file with the cluster's enrolment secret.
    pub token_file: PathBuf,
    /// Authorities that its certificate is checked against; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// Where is kept what it told, and what is to be reported to it.
    pub data_dir: PathBuf,
}

impl ControlPlane {
    /// What connections are made with; reads the file of authorities.
    ///
    /// # Errors
    /// The key that names what cannot be used.
    pub fn endpoint(&self) -> Result<link::Endpoint, ConfigError> {
        let (token_file, ca_file) = (self.token_file.clone(), self.ca_file.as_deref());
        link::Endpoint::new(&self.url, token_file, ca_file).map_err(|error| {
            let key = match error {
                link::BadEndpoint::Authorities { .. } => "control_plane.ca_file",
                link::BadEndpoint::Address(_) | link::BadEndpoint::Tls(_) => "control_plane.url",
            };
            ConfigError::new(key, error.to_string())
        })
    }

    /// The keys of browsers' cookies, from the enrolment secret as it is now: one that is replaced
    /// later takes effect at the next start, and ends sessions then.
    ///
    /// # Errors
    /// The file of the secret cannot be read, or is empty.
    pub fn seals(&self) -> Result<Seals, ConfigError> {
        let failed = |problem: String| {
            let message = format!("{}: {problem}", self.token_file.display());
            ConfigError::new("control_plane.token_file", message)
        };
        let text = std::fs::read_to_string(&self.token_file);
        let text = text.map_err(|error| failed(error.to_string()))?;
        let secret = Secret::new(text.trim());
        Seals::derive(&secret).map_err(|error| failed(error.to_string()))
    }
}

/// The keys that verify tokens; at least one is there.
#[derive(Clone, Debug)]
pub struct JwtAuth {
    /// HS256 secrets, the first is the current one; two during a rotation.
    pub secrets: Vec<SecretString>,
    /// PEM files of public keys.
    pub public_keys: Vec<PathBuf>,
    /// Where a JWK set is fetched.
    pub jwks_url: Option<http::Uri>,
}

impl JwtAuth {
    /// The keys that the file holds and names, read now; those of [`JwtAuth::jwks_url`] come later
    /// and over the network. `compat` is [`EngineConfig::compat_rstream`].
    ///
    /// # Errors
    /// A key file cannot be read, or holds no public key.
    pub fn keyring(&self, compat: bool) -> Result<Keyring, ConfigError> {
        keys::keyring(self, compat)
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the end of a request's head, or the last movement of its body, to the first byte of the
    /// answer's head; then 504.
    pub stream_request: Duration,
    /// How long an HTTP connection may be idle, a visitor's and one to an upstream.
    pub http_idle: Duration,
    /// How long a visitor may take nothing of an answer that waits for it.
    pub visitor_stall: Duration,
    /// How long a drain may take before what is left is cut.
    pub drain: Duration,
}

/// The access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogConfig {
    /// The file, or `-` for standard output.
    pub path: PathBuf,
    /// The form of a record.
    pub format: AccessLogFormat,
}

/// The form of a record of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// One JSON object a line.
    #[default]
    Json,
}

/// What one engine holds at most. Each is refused where it is reached; nothing waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Agents connected at once.
    pub max_clients: usize,
    /// Tunnels online at once.
    pub max_tunnels: usize,
    /// Tunnels of one agent.
    pub max_tunnels_per_client: usize,
    /// Streams that one agent serves at once.
    pub max_streams_per_client: usize,
    /// Visits under way at once.
    pub max_streams: usize,
    /// Those of one source over HTTP/2.
    pub max_streams_per_source: usize,
    /// Bytes that all streams together hold for readers that do not take them.
    pub max_buffered_bytes: usize,
    /// Watchers (SSE and WebSocket) at once.
    pub max_watchers: usize,
    /// Requests to the Engine API in a minute.
    pub api_rates: ApiRates,
    /// What one project of a managed engine may have of clients, tunnels, streams and watchers.
    pub project_share: Share,
    /// Connections of visitors, agents and API clients at once; `None`: half of the descriptors.
    pub max_connections: Option<usize>,
    /// Those of one source; `None`: an eighth of them.
    pub max_connections_per_source: Option<usize>,
    /// TLS handshakes of one source at once.
    pub max_handshakes_per_source: usize,
    /// A request's head, in bytes; more is 431.
    pub header_bytes: usize,
    /// A request's target, in bytes; more is 414.
    pub url_bytes: usize,
    /// What a request must average while its body is on its way, in bytes a second; `None`:
    /// nothing.
    pub min_body_rate: Option<NonZeroU32>,
}

/// A part of what an engine holds at most, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(pub usize);

impl Share {
    /// The part of so many, at least one.
    pub fn of(self, most: usize) -> usize {
        (most.saturating_mul(self.0) / 100).max(1)
    }
}
