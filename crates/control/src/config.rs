//! The platform's configuration: the format of the file, and the validated values. Other modules
//! only see the validated values.

mod check;
mod file;
mod inspect;
#[cfg(test)]
mod reference;
mod retention;
#[cfg(test)]
mod tests;
mod tls;
mod values;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use acme::TlsConfig;
use daemon::config::{ConfigErrors, Warning};
use daemon::logs::Level;
use daemon::metrics::MetricsConfig;
use ipnet::IpNet;
use jiff::SignedDuration;
use types::contact::AbuseContact;

pub use self::retention::Retention;
pub(crate) use self::values::{host_name, is_loopback, network};
use crate::billing::plans::Catalogue;
use crate::domains::DomainsConfig;
use crate::http_api::rate_limit::LimitsConfig;
use crate::mail::MailConfig;
use crate::oauth::Clients;
use crate::people::openid::OpenIdConfig;
use crate::webhooks::WebhooksConfig;

/// Validated configuration of a platform. The consistency between values is validated as well.
#[derive(Clone, Debug)]
pub struct Config {
    /// Public URL of the platform: `scheme://host[:port]`, without a trailing slash. It is
    /// the issuer of its tokens and the audience of tokens for it.
    pub base_url: String,
    /// Address and port on which the platform listens.
    pub listen: SocketAddr,
    /// Address and port of a second listener on loopback, without TLS; `None`: there is none.
    pub local_listen: Option<SocketAddr>,
    /// True if each connection to `listen` starts with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// TLS on the listener; `None` if a proxy in front of it terminates TLS.
    pub tls: Option<TlsConfig>,
    /// The metrics listener.
    pub metrics: MetricsConfig,
    /// Retention periods.
    pub retention: Retention,
    /// Rate limits of callers.
    pub limits: LimitsConfig,
    /// Log level.
    pub log_level: Level,
    /// Directory of the embedded database and of files that are created at the first start.
    pub data_dir: PathBuf,
    /// `postgres://…`; `None`: the embedded database in `data_dir`.
    pub database_url: Option<daemon::config::SecretString>,
    /// Maximum number of database connections; `None`: the default of SQLite or PostgreSQL.
    pub database_connections: Option<u32>,
    /// The secret that encrypts values in the database; `None`: `platform.secret` in `data_dir`.
    pub secret_file: Option<PathBuf>,
    /// Private keys (PKCS#8 in PEM) that sign tokens. The first signs, and all verify. If empty,
    /// keys are generated and stored in the database.
    pub signing_keys: Vec<PathBuf>,
    /// Rotation interval of the signing keys in the database; `None` if an operator rotates them.
    pub rotate_keys_every: Option<SignedDuration>,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Time from a stop request until the listener closes. New requests are still accepted.
    pub drain_period: Duration,
    /// Contact for reports of abuse, on pages.
    pub abuse_contact: Option<AbuseContact>,
    /// The engines of this platform.
    pub engines: Vec<ClusterConfig>,
    /// Plans, regions and prices.
    pub catalogue: Catalogue,
    /// Geolocation database (`.mmdb`) that maps addresses to locations; `None`: no locations.
    pub geoip_file: Option<PathBuf>,
    /// The TURN relay.
    pub turn: TurnConfig,
    /// The OAuth clients.
    pub oauth: Clients,
    /// Mail to users.
    pub mail: MailConfig,
    /// The OpenID Connect provider for sign-in; `None`: passwords only.
    pub openid: Option<OpenIdConfig>,
    /// Permitted targets of webhooks.
    pub webhooks: WebhooksConfig,
    /// Name servers that are asked about custom domains.
    pub domains: DomainsConfig,
    /// True if rstream's spellings are accepted, and sent in addition to ours.
    pub compat_rstream: bool,
    /// Cost of a password hash. It cannot be set in the configuration file.
    pub password_cost: PasswordCost,
}

/// Cost parameters of a password hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PasswordCost {
    /// The OWASP parameters of argon2id.
    #[default]
    Production,
    /// The lowest parameters that argon2 allows. Tests create thousands of accounts, and the hashes
    /// would take half of their time.
    LowestForTests,
}

/// An engine, or a cluster of them under one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Projects are available under `<endpoint>.<cluster domain>`.
    pub cluster_domain: String,
    /// File with the secret with which the engines authenticate at the platform.
    pub enrolment_secret_file: Option<PathBuf>,
    /// File with the secret with which a TURN relay authenticates at the platform.
    pub relay_secret_file: Option<PathBuf>,
    /// CA certificates that verify the engines' certificates, in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// TCP ports that projects may reserve on these engines; `None`: none.
    pub tcp_ports: Option<RangeInclusive<u16>>,
}

/// Address of the TURN relay, and the secret that it shares with the platform.
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
    /// File of the secret that the relay shares; `None`: a secret is generated and stored in the
    /// database.
    pub secret_file: Option<PathBuf>,
}

impl Config {
    /// Reads `file`, then `env` (all environment variables), and validates the result.
    ///
    /// # Errors
    /// All errors, each with its key and its source.
    pub fn load(
        file: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        daemon::config::load(file, env, check::platform)
    }

    /// Valid settings that are probably mistakes, for the start and `--check`. `now` is in seconds
    /// since 1970. Reads the files of certificates.
    ///
    /// # Errors
    /// A file cannot be used: the platform would not start.
    pub fn inspect(&self, now: i64) -> Result<Vec<Warning>, ConfigErrors> {
        inspect::platform(self, now)
    }

    /// The absolute URL of a path of the platform.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }

    /// The host of `base_url`, without the port.
    pub fn host(&self) -> &str {
        host_of(&self.base_url)
    }

    /// True if the platform's public address uses TLS.
    pub fn is_secure(&self) -> bool {
        self.base_url.starts_with("https://")
    }
}

/// The host of an origin, without the port.
fn host_of(origin: &str) -> &str {
    let rest = origin.split_once("//").map_or("", |(_, rest)| rest);
    match rest.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => rest,
    }
}

/// The JSON Schema of the file, for `svc platform --schema` and for editors.
pub fn schema() -> serde_json::Value {
    daemon::config::schema::<file::PlatformFile>()
}
