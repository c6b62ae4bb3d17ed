//! The shape of the file: strings and numbers as they are written. The doc of a field is its
//! description in the JSON Schema; its default comes from `Default`.

use daemon::config::SecretString;
use daemon::logs::Level;
use daemon::metrics::MetricsSection;
use schemars::JsonSchema;
use serde::Deserialize;

use super::retention::RetentionSection;
use crate::mail::MailSection;
use crate::oauth::OauthSection;
use crate::people::openid::OpenIdSection;
use crate::plans::CatalogSection;
use crate::rate_limit::LimitsSection;
use crate::webhooks::WebhooksSection;

/// The configuration of `svc platform`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "svc platform")]
pub(super) struct PlatformFile {
    /// The platform itself.
    pub(super) platform: PlatformSection,
    /// The certificate of the listener. Without it TLS ends in front of the listener.
    pub(super) tls: TlsSection,
    /// What the platform tells about itself.
    pub(super) metrics: MetricsSection,
    /// How long things are kept. Request logs and events are kept as long as the plan of their
    /// project says (`catalog.plans[].log_retention_days`); sessions, links, revoked tokens and
    /// counted failures go when they have ended.
    pub(super) retention: RetentionSection,
    /// What callers may cause.
    pub(super) limits: LimitsSection,
    /// The keys that sign tokens.
    pub(super) keys: KeysSection,
    /// The engines of this platform.
    pub(super) engines: Vec<EngineSection>,
    /// What can be created, where, and for how much.
    pub(super) catalog: CatalogSection,
    /// The location of addresses.
    pub(super) geoip: GeoipSection,
    /// The OAuth authorization server.
    pub(super) oauth: OauthSection,
    /// The TURN relay.
    pub(super) turn: TurnSection,
    /// A provider by which people sign in.
    pub(super) openid: OpenIdSection,
    /// Mail to people.
    pub(super) mail: MailSection,
    /// Where webhooks may go.
    pub(super) webhooks: WebhooksSection,
    /// Spellings of other platforms.
    pub(super) compat: CompatSection,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PlatformSection {
    /// Where people and programs reach the platform, without a path. `https`, or `http` on
    /// loopback. Required.
    #[schemars(example = "https://svc.example.com")]
    pub(super) base_url: Option<String>,
    /// Address and port of the listener. Without `tls` TLS ends in front of it, unless it is on
    /// loopback.
    pub(super) listen_addr: String,
    /// How much is logged to standard error: `error`, `warn`, `info` or `debug`.
    pub(super) log_level: Level,
    /// Where the embedded database and what is made at the first start are kept.
    pub(super) data_dir: String,
    /// `postgres://user:password@host/database`; absent: the embedded database.
    #[schemars(example = "postgres://svc:password@db.example.com/svc")]
    pub(super) database_url: Option<SecretString>,
    /// Connections to the database that this process has at most, 4 to 1000; absent: 16 to
    /// PostgreSQL, 9 to the embedded database. A PostgreSQL server that allows fewer gets no more
    /// than it allows. The connections of all platforms, and of whoever else uses the server, have
    /// to fit into its `max_connections`.
    pub(super) database_connections: Option<u32>,
    /// File of the secret, of at least 32 bytes, that seals what the database keeps of keys and
    /// second factors. Every process on one database has the same; it belongs into backups.
    /// Absent: `platform.secret` in the data directory, which is made for a new database.
    pub(super) secret_file: Option<String>,
    /// Private key files (PKCS#8 in PEM, Ed25519) that sign tokens. The first one signs, all
    /// verify: to rotate, put the new one first. Empty: keys are made, kept in the
    /// database under seal, and rotated.
    pub(super) signing_keys: Vec<String>,
    /// Addresses (CIDR) of proxies whose `X-Forwarded-For` is believed.
    pub(super) trusted_proxies: Vec<String>,
    /// Seconds after a stop was asked for in which requests are still taken, while `/readyz`
    /// answers 503 and answers close their connections: as long as a balancer needs to notice. Then
    /// the listener is closed and what is under way is finished. 0 to 300; a second signal ends it
    /// at once.
    pub(super) drain_seconds: u16,
}

impl Default for PlatformSection {
    fn default() -> Self {
        Self {
            base_url: None,
            listen_addr: "127.0.0.1:8080".to_owned(),
            log_level: Level::default(),
            data_dir: "/var/lib/svc".to_owned(),
            database_url: None,
            database_connections: None,
            secret_file: None,
            signing_keys: Vec::new(),
            trusted_proxies: Vec::new(),
            // Two probes of a balancer that asks every two seconds.
            drain_seconds: 5,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct KeysSection {
    /// Days after which another key signs, from 1 to 3650; 0: only when an operator says so. Keys
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
pub(super) struct TlsSection {
    /// The certificate chain, PEM, the platform's own certificate first. Both files are looked at
    /// again when a handshake comes, at most once a second, so replacing them needs no restart; a
    /// pair that is broken or does not belong together leaves the one before it in service.
    #[schemars(example = "/etc/svc/tls/fullchain.pem")]
    pub(super) cert_file: Option<String>,
    /// The private key, PEM.
    #[schemars(example = "/etc/svc/tls/privkey.pem")]
    pub(super) key_file: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EngineSection {
    /// Projects are reached under `<endpoint>.<cluster_domain>`. Required.
    pub(super) cluster_domain: Option<String>,
    /// File of the secret that an engine shows when it links up.
    pub(super) enrolment_secret_file: Option<String>,
    /// File of the secret that a TURN relay of the cluster shows when it links up: it is told the
    /// keys of TURN credentials, which engines are not, so it is another one than theirs.
    #[schemars(example = "/etc/svc/relay-secret")]
    pub(super) relay_secret_file: Option<String>,
    /// Authorities (PEM) that vouch for the certificates of the engines, beside those of the
    /// system: the platform asks engines for what is live in a project. Read at the start.
    #[schemars(example = "/etc/svc/tls/engines-ca.pem")]
    pub(super) ca_file: Option<String>,
    /// TCP ports that projects may reserve there, as `low-high`; absent: none. They lie within
    /// the range that the engines of the cluster publish on (`tcp.port_range`).
    #[schemars(example = "20000-20999")]
    pub(super) tcp_ports: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GeoipSection {
    /// A file of the `MaxMind` database form with countries, and places for a recommended region;
    /// if absent, no location is known.
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
    /// process; absent: one is made and kept in the database under seal.
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
    /// Whether the spellings of the platform that the published SDKs come from are accepted and
    /// sent beside ours.
    pub(super) rstream: bool,
}
