//! Reasons for which a relay cannot start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use daemon::config::ConfigError;
use daemon::metrics::MetricsError;
use daemon::tls::TlsError;

/// Reasons for which a relay cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener cannot use its address.
    #[error("`{key}`: cannot listen on {address}")]
    Listen {
        /// The key that names the address.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The file in this key cannot be used.
    #[error(transparent)]
    Key(#[from] ConfigError),
    /// The certificate cannot be used.
    #[error("`turn.tls`")]
    Certificate(#[from] TlsError),
    /// No certificate can be ordered: its state or a file is unusable.
    #[error("`turn.tls.acme`")]
    Orders(#[from] acme::OrderError),
    /// The TLS library rejects its configuration.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    /// The metrics listener is refused (MX-3) or cannot listen.
    #[error("`metrics.prometheus`")]
    Metrics(#[from] MetricsError),
    /// Data of the platform cannot be stored: the directory does not exist, or another relay uses
    /// it.
    #[error("`turn.control_plane.data_dir`: {}", .path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The system provides no randomness.
    #[error("the system has no random numbers")]
    Random,
    /// The system provides no threads or descriptors.
    #[error("the workers cannot be started")]
    Workers(#[source] io::Error),
}
