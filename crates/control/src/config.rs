//! The platform's configuration: the file's shape, and the checked values that the platform works
//! with. Nothing else sees the file.

mod check;
mod file;
#[cfg(test)]
mod reference;
mod retention;
#[cfg(test)]
mod tests;
mod values;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::config::ConfigError;
use daemon::logs::Level;
use daemon::metrics::MetricsConfig;
use daemon::tls::CertFiles;
use ipnet::IpNet;
use jiff::SignedDuration;

pub use self::retention::Retention;
pub(crate) use self::values::{host_name, is_loopback, network, path};
use crate::mail::MailConfig;
use crate::oauth::Clients;
use crate::people::openid::OpenIdConfig;
use crate::plans::Catalogue;
use crate::rate_limit::LimitsConfig;
use crate::webhooks::WebhooksConfig;

/// What a platform runs with. Every value is checked, and so is what the values say together.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where people and programs reach the platform: `scheme://host[:port]`, without a slash at
    /// the end. Issuer of its tokens and audience of those for it.
    pub base_url: String,
    /// The listener.
    pub listen: SocketAddr,
    /// The certificate of the listener; `None`: TLS ends in front of it.
    pub tls: Option<CertFiles>,
    /// The metrics listener.
    pub metrics: MetricsConfig,
    /// How long things are kept.
    pub retention: Retention,
    /// What callers may cause.
    pub limits: LimitsConfig,
    /// How much is logged.
    pub log_level: Level,
    /// Where the embedded database and what is made at the first start are kept.
    pub data_dir: PathBuf,
    /// `postgres://…`; `None`: the embedded database in `data_dir`.
    pub database_url: Option<daemon::config::SecretString>,
    /// Connections to the database at most; `None`: as the kind of database has them by default.
    pub database_connections: Option<u32>,
    /// The secret that seals what the database keeps; `None`: `platform.secret` in `data_dir`.
    pub secret_file: Option<PathBuf>,
    /// Private keys (PKCS#8 in PEM) that sign tokens: the first signs, all verify. Empty: they
    /// are made, and kept in the database.
    pub signing_keys: Vec<PathBuf>,
    /// After how long another key of the database signs; `None`: when an operator says so.
    pub rotate_keys_every: Option<SignedDuration>,
    /// Peers whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// For how long requests are still taken after a stop was asked for.
    pub drain: Duration,
    /// The engines of this platform.
    pub engines: Vec<EngineConfig>,
    /// What can be created, where, and for how much.
    pub catalogue: Catalogue,
    /// Where addresses are; `None`: nobody's place is known.
    pub geoip_file: Option<PathBuf>,
    /// The TURN relay.
    pub turn: TurnConfig,
    /// The OAuth clients.
    pub oauth: Clients,
    /// Mail to people.
    pub mail: MailConfig,
    /// The provider by which people sign in; `None`: with a password alone.
    pub openid: Option<OpenIdConfig>,
    /// Where webhooks may go.
    pub webhooks: WebhooksConfig,
    /// Whether the other brand's spellings are accepted and sent beside ours.
    pub compat_rstream: bool,
}

/// An engine, or a cluster of them under one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Projects are reached under `<endpoint>.<cluster domain>`.
    pub cluster_domain: String,
    /// The secret that an engine shows when it links up.
    pub enrolment_secret_file: Option<PathBuf>,
    /// The secret that a TURN relay shows when it links up.
    pub relay_secret_file: Option<PathBuf>,
    /// Authorities that vouch for its certificates, beside those of the system.
    pub ca_file: Option<PathBuf>,
    /// TCP ports that projects may reserve there; `None`: none.
    pub tcp_ports: Option<RangeInclusive<u16>>,
}

/// Where the TURN relay is, and what it shares with the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnConfig {
    /// Realm; `None`: the cluster domain of the project.
    pub realm: Option<String>,
    /// Host of the relay; `None`: the cluster domain of the project.
    pub domain: Option<String>,
    /// Port for UDP and TCP.
    pub port: u16,
    /// Port for TLS.
    pub tls_port: u16,
    /// The secret that the relay shares; `None`: one is made and kept in the database.
    pub secret_file: Option<PathBuf>,
}

impl Config {
    /// Reads `file` and then the environment (`env` is all of it), and checks the whole.
    ///
    /// # Errors
    /// The first thing that is wrong, with its key and where it was written.
    pub fn load(
        file: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        daemon::config::load_checked(file, env, check::platform)
    }

    /// The address of a path of ours.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }

    /// The host of `base_url`, without the port.
    pub fn host(&self) -> &str {
        let rest = self.base_url.split_once("//").map_or("", |(_, rest)| rest);
        match rest.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => rest,
        }
    }

    /// Whether people reach the platform over TLS.
    pub fn is_secure(&self) -> bool {
        self.base_url.starts_with("https://")
    }
}

/// The JSON Schema of the file, for `svc platform --schema` and for editors.
pub fn schema() -> serde_json::Value {
    daemon::config::schema::<file::PlatformFile>()
}
