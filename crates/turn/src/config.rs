//! The relay's configuration: the format of the file, and the checked values.

mod check;
mod file;
mod inspect;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
mod tls;

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use acme::TlsConfig;
use credentials::Secret;
use daemon::config::{ConfigError, ConfigErrors, StateDir};
use daemon::logs::Level;
use daemon::metrics::MetricsConfig;
use ipnet::IpNet;

pub use daemon::config::Warning;
pub use link::ControlPlane;

use crate::core::{Bandwidth, Limits, Quota};

/// The configuration of a relay. Every value is checked, and so are their combinations.
#[derive(Clone, Debug)]
pub struct TurnConfig {
    /// Level of the log.
    pub log_level: Level,
    /// Listeners for clients over UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// Listeners for clients over TLS.
    pub tls_listen: Vec<SocketAddr>,
    /// The certificate for TLS. It is present if there is a TLS listener.
    pub tls: Option<TlsConfig>,
    /// The realm of its credentials.
    pub realm: String,
    /// Relayed addresses.
    pub relay: RelayConfig,
    /// File of the secret that the platform and the relay share; `None` if the platform sends it.
    pub secret_file: Option<PathBuf>,
    /// Special-purpose networks that may be peers.
    pub allowed_peers: Vec<IpNet>,
    /// Limits of the number of allocations.
    pub quota: Quota,
    /// Limits of the data rates of allocations.
    pub bandwidth: Bandwidth,
    /// Limits of one allocation.
    pub limits: Limits,
    /// Maximum number of connections, over TCP and TLS together.
    pub max_connections: usize,
    /// Maximum number of connections from one source.
    pub max_connections_per_source: usize,
    /// The platform that the relay follows, if there is one.
    pub control_plane: Option<ControlPlane>,
    /// The metrics listener.
    pub metrics: MetricsConfig,
    /// Time for which allocations may continue when the relay stops.
    pub drain: Duration,
}

/// Relayed addresses: IPv4, then IPv6. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayConfig {
    /// Local addresses of their sockets.
    pub bind: [Option<IpAddr>; 2],
    /// Addresses that are sent to clients, and that peers use.
    pub announced: [Option<IpAddr>; 2],
    /// Range of their ports.
    pub ports: RangeInclusive<u16>,
}

impl TurnConfig {
    /// Reads `file` and then the environment (`env` is all of it), and checks the result.
    ///
    /// # Errors
    /// All errors, each with its key and its source.
    pub fn load(
        file: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        let env: Vec<_> = env.into_iter().collect();
        let state_dir = StateDir::of_environment(&env);
        daemon::config::load(file, env, |file| check::turn(file, state_dir))
    }

    /// Valid settings that are probably mistakes, for the start and `--check`. Reads the files in
    /// the configuration.
    ///
    /// # Errors
    /// Files in the configuration cannot be used: the relay would not start.
    pub fn inspect(&self, now: i64) -> Result<Vec<Warning>, ConfigErrors> {
        inspect::turn(self, now)
    }

    /// The secret that the platform and the relay share, if it is in a file.
    ///
    /// # Errors
    /// The file cannot be read, or its content is too short.
    pub fn secret(&self) -> Result<Option<Secret>, ConfigError> {
        self.secret_file.as_deref().map(secret).transpose()
    }
}

/// Reads a secret as the platform does: without surrounding white space, and at least 32 bytes.
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

/// The endpoint for connections to the platform. Reads the file of authorities.
pub(crate) fn endpoint(platform: &ControlPlane) -> Result<link::Endpoint, ConfigError> {
    platform.endpoint().map_err(|error| {
        let key = format!("turn.control_plane.{}", error.setting());
        ConfigError::new(key, error.to_string())
    })
}

/// The JSON Schema of the file, for `svc turn --schema` and for editors.
pub fn schema() -> serde_json::Value {
    daemon::config::schema::<file::TurnFile>()
}
