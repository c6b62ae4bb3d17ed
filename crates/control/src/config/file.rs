//! The format of the configuration file, with unvalidated strings and numbers. The doc comment of a
//! field is its description in the JSON Schema. Its default comes from `Default`.

use daemon::config::SecretString;
use daemon::logs::Level;
use daemon::metrics::MetricsSection;
use schemars::JsonSchema;
use serde::Deserialize;

use super::retention::RetentionSection;
use super::tls::TlsSection;
use crate::billing::plans::CatalogSection;
use crate::domains::DomainsSection;
use crate::http_api::rate_limit::LimitsSection;
use crate::mail::MailSection;
use crate::oauth::OauthSection;
use crate::people::openid::OpenIdSection;
use crate::webhooks::WebhooksSection;

/// The configuration of `svc platform`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "svc platform")]
pub(super) struct PlatformFile {
    /// The platform itself.
    pub(super) platform: PlatformSection,
    /// The certificate of the listener, from files or from an authority. Without it a proxy in front
    /// of the listener must terminate TLS.
    pub(super) tls: TlsSection,
    /// The metrics of the platform.
    pub(super) metrics: MetricsSection,
    /// Retention periods. Request logs and events are kept for the period of their project's plan
    /// (`catalog.plans[].log_retention_days`). Sessions, links, revoked tokens and failure counters
    /// are deleted after they end.
    pub(super) retention: RetentionSection,
    /// Rate limits of callers.
    pub(super) limits: LimitsSection,
    /// The keys that sign tokens.
    pub(super) keys: KeysSection,
    /// The engines of this platform.
    pub(super) engines: Vec<EngineSection>,
    /// Plans, regions and prices.
    pub(super) catalog: CatalogSection,
    /// The location of addresses.
    pub(super) geoip: GeoipSection,
    /// The OAuth authorization server.
    pub(super) oauth: OauthSection,
    /// The TURN relay.
    pub(super) turn: TurnSection,
    /// A provider for sign-ins.
    pub(super) openid: OpenIdSection,
    /// Mail to users.
    pub(super) mail: MailSection,
    /// Permitted targets of webhooks.
    pub(super) webhooks: WebhooksSection,
    /// Name servers that are asked about custom domains.
    pub(super) domains: DomainsSection,
    /// Spellings of other platforms.
    pub(super) compat: CompatSection,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PlatformSection {
    /// Public address of the platform, without a path. `https`, or `http` on loopback. Required.
    #[schemars(example = "https://svc.example.com")]
    pub(super) base_url: Option<String>,
    /// Address and port of the listener. Without `tls` a proxy in front of it must terminate TLS,
    /// unless it is on loopback.
    pub(super) listen_addr: String,
    /// Address and port of a second listener, on loopback, without TLS and without headers of the
    /// PROXY protocol: for engines, relays and tools on this machine. Absent: none.
    #[schemars(example = "127.0.0.1:8081")]
    pub(super) local_listen_addr: Option<String>,
    /// Log level of standard error: `error`, `warn`, `info` or `debug`.
    pub(super) log_level: Level,
    /// Directory of the embedded database and of files that are created at the first start.
    pub(super) data_dir: String,
    /// `postgres://user:password@host/database`; absent: the embedded database.
    #[schemars(example = "postgres://svc:password@db.example.com/svc")]
    pub(super) database_url: Option<SecretString>,
    /// Maximum number of database connections of this process, 4 to 1000; absent: 16 to PostgreSQL,
    /// 9 to the embedded database. If a PostgreSQL server allows fewer, that number is used. The
    /// connections of all platforms and of other users of the server must fit into its
    /// `max_connections`.
    pub(super) database_connections: Option<u32>,
    /// File of the secret, of at least 32 bytes, that encrypts keys and second factors in the
    /// database. Every process on one database needs the same secret. Include it in backups.
    /// Absent: `platform.secret` in the data directory, which is created for a new database.
    pub(super) secret_file: Option<String>,
    /// Private key files (PKCS#8 in PEM, Ed25519) that sign tokens. The first one signs, and all
    /// verify: to rotate, put the new one first. Empty: keys are generated, stored encrypted in the
    /// database, and rotated.
    pub(super) signing_keys: Vec<String>,
    /// Addresses (CIDR) of proxies whose `X-Forwarded-For` is trusted.
    pub(super) trusted_proxies: Vec<String>,
    /// Seconds after a stop request in which requests are still accepted, while `/readyz` returns
    /// 503 and responses close their connections: as long as a balancer needs to notice. Then the
    /// listener is closed and requests in flight are finished. 0 to 300; a second signal stops the
    /// process immediately.
    pub(super) drain_seconds: u16,
    /// Contact for reports of abuse on all pages that the platform renders: a mail address, or an https address.
    #[schemars(example = "abuse@example.com")]
    pub(super) abuse_contact: Option<String>,
}

impl Default for PlatformSection {
    fn default() -> Self {
        Self {
            base_url: None,
            listen_addr: "127.0.0.1:8080".to_owned(),
            local_listen_addr: None,
            log_level: Level::default(),
            data_dir: "/var/lib/svc".to_owned(),
            database_url: None,
            database_connections: None,
            secret_file: None,
            signing_keys: Vec::new(),
            trusted_proxies: Vec::new(),
            // Two probes of a balancer that probes every two seconds.
            drain_seconds: 5,
            abuse_contact: None,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct KeysSection {
    /// Days after which another key signs, from 1 to 3650; 0: only on an operator's request. Keys
    /// of `platform.signing_keys` are rotated by hand.
    pub(super) rotate_days: u16,
}

impl Default for KeysSection {
    fn default() -> Self {
        Self { rotate_days: 90 }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EngineSection {
    /// Projects are available under `<endpoint>.<cluster_domain>`. Required.
    pub(super) cluster_domain: Option<String>,
    /// File of the secret with which an engine connects.
    pub(super) enrolment_secret_file: Option<String>,
    /// File of the secret with which a TURN relay of the cluster connects. A relay receives the
    /// keys of TURN credentials and engines do not, so this must be another secret than theirs.
    #[schemars(example = "/etc/svc/relay-secret")]
    pub(super) relay_secret_file: Option<String>,
    /// Certificate authorities (PEM) for the certificates of the engines, in addition to the
    /// system's. The platform requests the live state of projects from engines. Read at startup.
    #[schemars(example = "/etc/svc/tls/engines-ca.pem")]
    pub(super) ca_file: Option<String>,
    /// TCP ports that projects may reserve there, as `low-high`; absent: none. They must be within
    /// the range that the engines of the cluster publish on (`tcp.port_range`).
    #[schemars(example = "20000-20999")]
    pub(super) tcp_ports: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GeoipSection {
    /// A file in the `MaxMind` database format with countries, and coordinates for a recommended
    /// region. If absent, no location is known.
    pub(super) file: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TurnSection {
    /// Realm of the relay; absent: the cluster domain of the project.
    pub(super) realm: Option<String>,
    /// Host of the relay; absent: the cluster domain of the project.
    pub(super) domain: Option<String>,
    /// Port for UDP and TCP.
    pub(super) port: u16,
    /// Port for TLS.
    pub(super) tls_port: u16,
    /// File of the secret that relay and platform share, of at least 32 bytes, the same on every
    /// process; absent: a secret is generated and stored encrypted in the database.
    pub(super) secret_file: Option<String>,
}

impl Default for TurnSection {
    fn default() -> Self {
        Self {
            realm: None,
            domain: None,
            port: 3478,
            tls_port: 5349,
            secret_file: None,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CompatSection {
    /// Accept the spellings of the platform that the published SDKs come from, and send them
    /// together with ours.
    pub(super) rstream: bool,
}
