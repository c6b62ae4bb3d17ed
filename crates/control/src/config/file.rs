//! The shape of the file: strings and numbers as they are written. The doc of a field is its
//! description in the JSON Schema; its default comes from `Default`.

use daemon::config::SecretString;
use daemon::logs::Level;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::mail::MailSection;
use crate::oauth::OauthSection;
use crate::people::openid::OpenIdSection;
use crate::plans::CatalogSection;

/// The configuration of `svc platform`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "svc platform")]
pub(super) struct PlatformFile {
    /// The platform itself.
    pub(super) platform: PlatformSection,
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
    /// Address and port of the listener. TLS ends in front of it, unless it is on loopback.
    pub(super) listen_addr: String,
    /// How much is logged to standard error: `error`, `warn`, `info` or `debug`.
    pub(super) log_level: Level,
    /// Where the embedded database and what is made at the first start are kept.
    pub(super) data_dir: String,
    /// `postgres://user:password@host/database`; absent: the embedded database.
    pub(super) database_url: Option<SecretString>,
    /// Files of private keys (PKCS#8 in PEM, Ed25519) that sign tokens: the first signs, all
    /// verify, so that a rotation puts the new one first. Empty: one is made in the data
    /// directory.
    pub(super) signing_keys: Vec<String>,
    /// Addresses (CIDR) of proxies whose `X-Forwarded-For` is believed.
    pub(super) trusted_proxies: Vec<String>,
}

impl Default for PlatformSection {
    fn default() -> Self {
        Self {
            base_url: None,
            listen_addr: "127.0.0.1:8080".to_owned(),
            log_level: Level::default(),
            data_dir: "/var/lib/svc".to_owned(),
            database_url: None,
            signing_keys: Vec::new(),
            trusted_proxies: Vec::new(),
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EngineSection {
    /// Projects are reached under `<endpoint>.<cluster_domain>`. Required.
    pub(super) cluster_domain: Option<String>,
    /// File of the secret that an engine shows when it links up.
    pub(super) enrolment_secret_file: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GeoipSection {
    /// A file of the `MaxMind` database form with countries, and places for a recommended region;
    /// absent: nobody's place is known.
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
    /// File of the secret that relay and platform share, of at least 32 bytes; absent: one is
    /// made in the data directory.
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
