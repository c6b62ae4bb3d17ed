//! The relay's configuration: the file's shape, and the checked values that it works with.

mod check;
mod file;
mod inspect;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use credentials::Secret;
use daemon::config::{ConfigError, StateDir};
use daemon::logs::Level;
use daemon::metrics::MetricsConfig;
use daemon::tls::CertFiles;
use ipnet::IpNet;

use crate::core::{Bandwidth, Limits, Quota};

/// What a relay runs with. Every value is checked, and so is what the values say together.
#[derive(Clone, Debug)]
pub struct TurnConfig {
    /// How much is logged.
    pub log_level: Level,
    /// Where clients come in over UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// Where clients come in over TLS.
    pub tls_listen: Vec<SocketAddr>,
    /// The certificate for TLS; there wherever there is a listener for it.
    pub certificate: Option<CertFiles>,
    /// The realm of its credentials.
    pub realm: String,
    /// Relayed addresses.
    pub relay: RelayConfig,
    /// The file of the secret that platform and relay share; `None`: the platform tells it.
    pub secret_file: Option<PathBuf>,
    /// Special networks that may be peers.
    pub allowed_peers: Vec<IpNet>,
    /// How many allocations there may be.
    pub quota: Quota,
    /// How fast allocations are.
    pub bandwidth: Bandwidth,
    /// What one allocation may hold.
    pub limits: Limits,
    /// How many connections there may be, TCP and TLS together.
    pub max_connections: usize,
    /// How many connections one source may have.
    pub max_connections_per_source: usize,
    /// The platform that is followed; `None`: there is none.
    pub control_plane: Option<ControlPlane>,
    /// The metrics listener.
    pub metrics: MetricsConfig,
    /// How long allocations may go on when the relay is to stop.
    pub drain: Duration,
}

/// Relayed addresses: IPv4, then IPv6; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayConfig {
    /// What their sockets are bound to.
    pub bind: [Option<IpAddr>; 2],
    /// What clients and peers are told.
    pub announced: [Option<IpAddr>; 2],
    /// Their ports.
    pub ports: RangeInclusive<u16>,
}

/// The platform that a relay follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// Its address: https, or http on loopback.
    pub url: String,
    /// The file with the secret that relays of the cluster show.
    pub token_file: PathBuf,
    /// Authorities that its certificate is checked against; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// Where is kept what it told, and what is to be reported to it.
    pub data_dir: PathBuf,
}

impl TurnConfig {
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
        daemon::config::load_checked(file, env, |file| check::turn(file, state_dir))
    }

    /// What is allowed and yet probably a mistake, for start and `--check`. Reads the files that
    /// the configuration names.
    ///
    /// # Errors
    /// A file that is named cannot be used: the relay would not start.
    pub fn inspect(&self, now: i64) -> Result<Vec<Warning>, ConfigError> {
        inspect::turn(self, now)
    }

    /// The secret that platform and relay share, where a file has it.
    ///
    /// # Errors
    /// The file cannot be read, or holds less than a secret.
    pub fn secret(&self) -> Result<Option<Secret>, ConfigError> {
        self.secret_file.as_deref().map(secret).transpose()
    }
}

/// As the platform reads it: without white space around it, and at least 32 bytes.
fn secret(path: &Path) -> Result<Secret, ConfigError> {
    let refused = |problem: &str| {
        let message = format!("{}: {problem}", path.display());
        ConfigError::new("turn.secret_file", message)
    };
    let bytes = daemon::files::read_bounded(path, MAX_SECRET_BYTES)
        .map_err(|error| refused(&error.to_string()))?;
    let text = bytes.trim_ascii();
    if text.len() < MIN_SECRET_BYTES {
        return Err(refused("a secret has at least 32 bytes"));
    }
    Ok(Secret::new(text))
}

const MIN_SECRET_BYTES: usize = 32;
const MAX_SECRET_BYTES: u64 = 4096;

impl ControlPlane {
    /// What connections are made with; reads the file of authorities.
    ///
    /// # Errors
    /// The key that names what cannot be used.
    pub fn endpoint(&self) -> Result<link::Endpoint, ConfigError> {
        let (token_file, ca_file) = (self.token_file.clone(), self.ca_file.as_deref());
        link::Endpoint::new(&self.url, token_file, ca_file).map_err(|error| {
            let key = match error {
                link::BadEndpoint::Authorities { .. } => "turn.control_plane.ca_file",
                link::BadEndpoint::Address(_) | link::BadEndpoint::Tls(_) => {
                    "turn.control_plane.url"
                }
            };
            ConfigError::new(key, error.to_string())
        })
    }
}

/// The JSON Schema of the file, for `svc turn --schema` and for editors.
pub fn schema() -> serde_json::Value {
    daemon::config::schema::<file::TurnFile>()
}

/// Something that an operator should look at; the relay starts all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The dotted key.
    pub key: &'static str,
    /// A sentence.
    pub message: String,
}
