//! The engine's configuration: the file's shape, and the checked values that the engine works
//! with. Nothing else in the engine sees the file.
//!
//! `file` is what may be written, `check` turns it into an [`EngineConfig`], `inspect` finds what is
//! allowed and yet probably a mistake. `docs/configuration.md` is made from `file`.

mod check;
mod file;
mod inspect;
mod keys;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use credentials::Keyring;
use daemon::config::{ConfigError, SecretString};
use daemon::logs::Level;
use daemon::metrics::MetricsConfig;
use daemon::tls::CertFiles;
use ipnet::IpNet;

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
    /// Who may come in.
    pub auth: JwtAuth,
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
        daemon::config::load_checked(file, env, check::engine)
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
    /// Watchers (SSE and WebSocket) at once.
    pub max_watchers: usize,
    /// A request's head, in bytes; more is 431.
    pub header_bytes: usize,
    /// A request's target, in bytes; more is 414.
    pub url_bytes: usize,
}
