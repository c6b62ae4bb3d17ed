//! The cluster of an engine: the section of the file, and its check.

use std::net::SocketAddr;
use std::path::PathBuf;

use daemon::config::values::{address, is_dns_name, is_loopback, path, required};
use daemon::config::{ConfigError, ConfigErrors};
use daemon::files::read_bounded;
use etcd::{Endpoint, Login, Password, TlsFiles};
use schemars::JsonSchema;
use serde::Deserialize;

/// The cluster that an engine belongs to.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Name of the cluster.
    pub name: String,
    /// Name of this engine, which its certificate contains.
    pub engine: String,
    /// Address of the listener for other engines.
    pub listen: SocketAddr,
    /// Host and port at which other engines reach that listener.
    pub advertise: String,
    /// The zone of this engine.
    pub zone: Option<String>,
    /// The authority of the cluster, PEM.
    pub ca_file: PathBuf,
    /// The certificate of this engine, PEM.
    pub cert_file: PathBuf,
    /// The key of the certificate, PEM.
    pub key_file: PathBuf,
    /// The store.
    pub store: StoreConfig,
}

impl ClusterConfig {
    /// Reads the authority.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn check_authority(&self) -> Result<(), ConfigError> {
        let read = read_bounded(&self.ca_file, MAX_AUTHORITY_BYTES);
        read.map(drop).map_err(|error| {
            let message = format!("{}: {error}", self.ca_file.display());
            ConfigError::new("cluster.ca_file", message)
        })
    }
}

/// The store of a cluster.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Its members; at least one.
    pub endpoints: Vec<Endpoint>,
    /// Certificates for `https` members.
    pub tls: Option<TlsFiles>,
    /// A user and the file of its password.
    pub login: Option<(String, PathBuf)>,
}

impl StoreConfig {
    /// The user of the store, with the password from its file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn login(&self) -> Result<Option<Login>, ConfigError> {
        let Some((user, file)) = &self.login else {
            return Ok(None);
        };
        let failed = |problem: String| {
            let message = format!("{}: {problem}", file.display());
            ConfigError::new("cluster.etcd.password_file", message)
        };
        let bytes = read_bounded(file, MAX_PASSWORD_BYTES);
        let bytes = bytes.map_err(|error| failed(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8".to_owned()))?;
        let password = text.trim_end_matches(['\r', '\n']).to_owned();
        Ok(Some(Login {
            user: user.clone(),
            password: Password::new(password),
        }))
    }

    /// Reads the certificates.
    ///
    /// # Errors
    /// A file cannot be used.
    pub(crate) fn check_certificates(&self) -> Result<(), ConfigError> {
        let read = self.tls.as_ref().map(TlsFiles::client_config);
        let failed = |error: etcd::TlsFilesError| {
            ConfigError::new("cluster.etcd.ca_file", error.to_string())
        };
        read.transpose().map(drop).map_err(failed)
    }

    /// True if other machines read and change the messages to the store on their way.
    pub(super) fn is_exposed(&self) -> bool {
        is_exposed(&self.endpoints)
    }
}

fn is_exposed(endpoints: &[Endpoint]) -> bool {
    let is_plain = |endpoint: &Endpoint| !endpoint.has_tls && !is_loopback(&endpoint.host);
    endpoints.iter().any(is_plain)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClusterSection {
    /// Name of the cluster: a label of letters, digits and dashes. Engines with the same name and
    /// the same store form one cluster. Required in this section.
    #[schemars(example = &"prod")]
    pub(super) name: Option<String>,
    /// Name of this engine: a label, which no other engine of the cluster has. Required in this
    /// section.
    #[schemars(example = &"engine-1")]
    pub(super) engine: Option<String>,
    /// Address and port of the listener for other engines of the cluster.
    #[schemars(example = &"10.0.0.11:7443")]
    pub(super) listen_addr: String,
    /// Host and port at which the other engines reach that listener. Required in this section.
    #[schemars(example = &"10.0.0.11:7443")]
    pub(super) advertise: Option<String>,
    /// Zone of this engine, such as a data centre: a label.
    #[schemars(example = &"eu-west-1a")]
    pub(super) zone: Option<String>,
    /// A PEM file with the cluster's own authority, which issues the certificates of its engines.
    /// Required in this section.
    #[schemars(example = &"/etc/svc/cluster/ca.pem")]
    pub(super) ca_file: Option<String>,
    /// The certificate of this engine, PEM. Required in this section.
    #[schemars(example = &"/etc/svc/cluster/engine-1.pem")]
    pub(super) cert_file: Option<String>,
    /// The key of that certificate, PEM. Required in this section.
    #[schemars(example = &"/etc/svc/cluster/engine-1.key")]
    pub(super) key_file: Option<String>,
    /// The store of the cluster.
    pub(super) etcd: EtcdSection,
}

impl Default for ClusterSection {
    fn default() -> Self {
        Self {
            name: None,
            engine: None,
            listen_addr: "[::]:7443".to_owned(),
            advertise: None,
            zone: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            etcd: EtcdSection::default(),
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EtcdSection {
    /// Addresses of the members of etcd, all with https, or all with http. At least one, at most 9.
    #[schemars(example = ["https://etcd-1.internal:2379", "https://etcd-2.internal:2379", "https://etcd-3.internal:2379"])]
    pub(super) endpoints: Vec<String>,
    /// A PEM file of authorities for checking the certificates of the members. Required with https.
    #[schemars(example = &"/etc/svc/etcd/ca.pem")]
    pub(super) ca_file: Option<String>,
    /// A client certificate, PEM, for members that require one. With `key_file`.
    #[schemars(example = &"/etc/svc/etcd/client.pem")]
    pub(super) cert_file: Option<String>,
    /// The key of the client certificate, PEM.
    #[schemars(example = &"/etc/svc/etcd/client-key.pem")]
    pub(super) key_file: Option<String>,
    /// Name of the user, if the store requires one. With `password_file`.
    #[schemars(example = &"svc")]
    pub(super) username: Option<String>,
    /// The file with the password of the user, read at the start.
    #[schemars(example = &"/etc/svc/etcd/password")]
    pub(super) password_file: Option<String>,
}

/// Checks the section.
pub(super) fn check(
    section: Option<ClusterSection>,
) -> Result<Option<ClusterConfig>, ConfigErrors> {
    let Some(section) = section else {
        return Ok(None);
    };
    let mut errors = ConfigErrors::default();
    let name = errors.keep(label("cluster.name", section.name));
    let engine = errors.keep(label("cluster.engine", section.engine));
    let listen = address("cluster.listen_addr", &section.listen_addr, "[::]:7443");
    let listen = errors.keep(listen);
    let advertise = errors.keep(advertise(section.advertise, listen));
    let zone = section.zone.map(|zone| label("cluster.zone", Some(zone)));
    let zone = errors.keep_or_default(zone.transpose());
    let mut file = |key, value| {
        let value = required(key, value).and_then(|value| path(key, value));
        errors.keep(value)
    };
    let ca_file = file("cluster.ca_file", section.ca_file);
    let cert_file = file("cluster.cert_file", section.cert_file);
    let key_file = file("cluster.key_file", section.key_file);
    let store = errors.keep(store(section.etcd));
    let checked = || {
        Some(ClusterConfig {
            name: name?,
            engine: engine?,
            listen: listen?,
            advertise: advertise?,
            zone,
            ca_file: ca_file?,
            cert_file: cert_file?,
            key_file: key_file?,
            store: store?,
        })
    };
    let checked = checked();
    errors.finish(checked).map(Some)
}

fn store(section: EtcdSection) -> Result<StoreConfig, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let count = section.endpoints.len();
    if !(1..=MAX_ENDPOINTS).contains(&count) {
        let message = format!("1 to {MAX_ENDPOINTS} addresses are required");
        errors.push(ConfigError::new("cluster.etcd.endpoints", message));
    }
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for (index, text) in section.endpoints.iter().take(MAX_ENDPOINTS).enumerate() {
        let key = format!("cluster.etcd.endpoints.{index}");
        match text.parse::<Endpoint>() {
            Ok(endpoint) => endpoints.push(endpoint),
            Err(error) => errors.push(ConfigError::new(key, format!("{text:?}: {error}"))),
        }
    }
    let has_tls = endpoints.iter().any(|endpoint| endpoint.has_tls);
    if has_tls && !endpoints.iter().all(|endpoint| endpoint.has_tls) {
        let message = "the addresses must all have https, or all http";
        errors.push(ConfigError::new("cluster.etcd.endpoints", message));
    }
    let mut pair = |keys: [&str; 2], values: [Option<String>; 2]| match values {
        [Some(first), Some(second)] => Some((first, second)),
        [None, None] => None,
        [None, Some(_)] | [Some(_), None] => {
            let [first, second] = keys;
            let message = format!("it is required together with `cluster.etcd.{second}`");
            let key = format!("cluster.etcd.{first}");
            errors.push(ConfigError::new(key, message));
            None
        }
    };
    let files = [section.cert_file, section.key_file];
    let client = pair(["cert_file", "key_file"], files);
    let user = [section.username, section.password_file];
    let login = pair(["username", "password_file"], user);
    if has_tls && section.ca_file.is_none() {
        let message = "this key is required with https";
        errors.push(ConfigError::new("cluster.etcd.ca_file", message));
    } else if !has_tls && (section.ca_file.is_some() || client.is_some()) {
        let message = "certificates are used with https only";
        errors.push(ConfigError::new("cluster.etcd.ca_file", message));
    }
    let tls = section.ca_file.map(|ca_file| TlsFiles {
        ca_file: ca_file.into(),
        client: client.map(|(certificate, key)| (certificate.into(), key.into())),
    });
    if login.is_some() && is_exposed(&endpoints) {
        let message = "a password is sent with https only, or over loopback";
        errors.push(ConfigError::new("cluster.etcd.password_file", message));
    }
    let login = login.map(|(user, file)| (user, file.into()));
    errors.finish(Some(StoreConfig {
        endpoints,
        tls,
        login,
    }))
}

/// A label of a host name, which names of certificates and keys of the store contain.
fn label(key: &str, value: Option<String>) -> Result<String, ConfigError> {
    let value = required(key, value)?;
    let is_lower = value.bytes().all(|byte| !byte.is_ascii_uppercase());
    if !is_lower || value.contains('.') || !is_dns_name(&value) {
        let message = format!("{value:?} is not a label of lower-case letters, digits and dashes");
        return Err(ConfigError::new(key, message));
    }
    Ok(value)
}

/// The address for other engines. Port 0 is that of a listener with port 0, which the system chooses.
fn advertise(value: Option<String>, listen: Option<SocketAddr>) -> Result<String, ConfigError> {
    const KEY: &str = "cluster.advertise";
    let value = required(KEY, value)?;
    let is_any = listen.is_some_and(|listen| listen.port() == 0);
    let is_port = |port: u16| port > 0 || is_any;
    let is_address = value.parse::<SocketAddr>().is_ok_and(|address| {
        let is_reachable = !address.ip().is_unspecified();
        is_reachable && is_port(address.port())
    });
    let is_name = value.parse::<SocketAddr>().is_err()
        && value.rsplit_once(':').is_some_and(|(host, port)| {
            is_dns_name(host) && port.parse::<u16>().is_ok_and(is_port)
        });
    if !(is_address || is_name) {
        let message = format!(
            "{value:?} is not a host and a port at which other engines reach this one, such as \
             10.0.0.11:7443"
        );
        return Err(ConfigError::new(KEY, message));
    }
    Ok(value)
}

/// Members vote about each change; more than seven only make a store slower.
const MAX_ENDPOINTS: usize = 9;

/// The authority is one certificate.
const MAX_AUTHORITY_BYTES: u64 = 64 * 1024;

/// Passwords have some dozen bytes.
const MAX_PASSWORD_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> ClusterSection {
        let text = |text: &str| Some(text.to_owned());
        ClusterSection {
            name: text("prod"),
            engine: text("engine-1"),
            advertise: text("10.0.0.11:7443"),
            zone: text("a"),
            ca_file: text("/ca.pem"),
            cert_file: text("/engine.pem"),
            key_file: text("/key.pem"),
            etcd: EtcdSection {
                endpoints: vec!["https://etcd-1:2379".to_owned()],
                ca_file: text("/etcd.pem"),
                ..EtcdSection::default()
            },
            ..ClusterSection::default()
        }
    }

    fn keys(section: ClusterSection) -> Vec<String> {
        let errors = check(Some(section)).unwrap_err();
        errors.iter().map(|error| error.key.clone()).collect()
    }

    #[test]
    fn an_engine_without_the_section_has_no_cluster() {
        assert!(check(None).unwrap().is_none());
    }

    #[test]
    fn the_section_is_checked() {
        let config = check(Some(section())).unwrap().unwrap();
        assert_eq!(config.store.endpoints.len(), 1);
        assert_eq!(config.zone.as_deref(), Some("a"));
        assert_eq!(
            keys(ClusterSection::default()),
            [
                "cluster.name",
                "cluster.engine",
                "cluster.advertise",
                "cluster.ca_file",
                "cluster.cert_file",
                "cluster.key_file",
                "cluster.etcd.endpoints",
            ]
        );
        for wrong in [
            "",
            "0.0.0.0:7443",
            "10.0.0.1",
            "10.0.0.1:0",
            "host",
            "a b:1",
        ] {
            let section = ClusterSection {
                advertise: Some(wrong.to_owned()),
                ..section()
            };
            assert_eq!(keys(section), ["cluster.advertise"], "{wrong}");
        }
        let any_port = ClusterSection {
            listen_addr: "127.0.0.1:0".to_owned(),
            advertise: Some("127.0.0.1:0".to_owned()),
            ..section()
        };
        assert!(check(Some(any_port)).is_ok());
        for wrong in ["", "Prod", "a.b", "a_b"] {
            let section = ClusterSection {
                name: Some(wrong.to_owned()),
                ..section()
            };
            assert_eq!(keys(section), ["cluster.name"], "{wrong}");
        }
    }

    #[test]
    fn the_password_is_read_from_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        let mut section = section();
        section.etcd.username = Some("svc".to_owned());
        section.etcd.password_file = Some(file.display().to_string());
        let store = check(Some(section)).unwrap().unwrap().store;
        assert!(store.login().is_err(), "there is no file");
        std::fs::write(&file, "secret\n").unwrap();
        let login = store.login().unwrap().unwrap();
        assert_eq!(login.user, "svc");
        assert!(!format!("{login:?}").contains("secret"));
        let error = store.check_certificates().unwrap_err();
        assert_eq!(error.key, "cluster.etcd.ca_file");
    }

    #[test]
    fn the_store_has_complete_certificates_and_users() {
        let text = |text: &str| Some(text.to_owned());
        let mut half = section();
        half.etcd.cert_file = text("/client.pem");
        assert_eq!(keys(half), ["cluster.etcd.cert_file"]);
        let mut half = section();
        half.etcd.username = text("svc");
        assert_eq!(keys(half), ["cluster.etcd.username"]);
        let mut bare = section();
        bare.etcd.ca_file = None;
        assert_eq!(keys(bare), ["cluster.etcd.ca_file"]);
        let mut exposed = section();
        exposed.etcd = EtcdSection {
            endpoints: vec!["http://etcd-1:2379".to_owned()],
            username: text("svc"),
            password_file: text("/password"),
            ..EtcdSection::default()
        };
        assert_eq!(keys(exposed), ["cluster.etcd.password_file"]);
        let mut mixed = section();
        mixed.etcd.endpoints.push("http://etcd-2:2379".to_owned());
        assert_eq!(keys(mixed), ["cluster.etcd.endpoints"]);
        let mut wrong = section();
        wrong.etcd.endpoints.push("etcd-2".to_owned());
        assert_eq!(keys(wrong), ["cluster.etcd.endpoints.1"]);
    }
}
