//! Errors that prevent an engine from starting.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use daemon::config::ConfigError;
use daemon::descriptors::InheritError;
use daemon::metrics::MetricsError;
use daemon::tls::TlsError;

use crate::geo::GeoError;

/// Errors that prevent an engine from starting.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address of a listener cannot be bound.
    #[error("`{key}`: cannot listen on {address}")]
    Listen {
        /// The key that names the address.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// Tunnels cannot be published below `engine.host`.
    #[error("`engine.host`: {0}")]
    Host(String),
    /// A key for verifying tokens cannot be read.
    #[error(transparent)]
    Key(#[from] ConfigError),
    /// The certificate cannot be used.
    #[error("`certs.static`")]
    Certificate(#[from] TlsError),
    /// The certificate of a custom domain cannot be used.
    #[error("`domains`")]
    DomainCertificate(#[source] TlsError),
    /// A custom domain cannot be served.
    #[error("`domains`: {0}")]
    Domains(String),
    /// No certificate can be ordered: its state or a file is unusable.
    #[error("`certs.acme`")]
    Orders(#[from] acme::OrderError),
    /// An address for DNS cannot be bound.
    #[error("`certs.acme.dns_responder.listen_addr`")]
    Responder(#[from] dns::BindError),
    /// The TLS library rejects its configuration.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    /// The metrics listener is rejected (MX-3) or cannot listen.
    #[error("`metrics.prometheus`")]
    Metrics(#[from] MetricsError),
    /// The file with the countries of addresses cannot be read.
    #[error("`geoip.file`: {}", .path.display())]
    GeoIp {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: GeoError,
    },
    /// The access log cannot be written.
    #[error("`access_log.path`: {}", .path.display())]
    AccessLog {
        /// Path of the log.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The data directory for the platform's state cannot be used: it is missing, or another engine
    /// uses it.
    #[error("`control_plane.data_dir`: {}", .path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The storage for terminal recordings cannot be opened.
    #[error(transparent)]
    Recordings(#[from] crate::webtty::recordings::OpenError),
    /// The sockets from the supervisor do not match the configuration.
    #[error(transparent)]
    Inherited(#[from] InheritError),
    /// The old process has ended before this one has replaced it.
    #[error("the old process has ended")]
    Predecessor(#[source] io::Error),
    /// The engine cannot be a member of its cluster.
    #[error("`cluster`: {0}")]
    Cluster(#[from] crate::cluster::ClusterError),
    /// The system refuses threads or descriptors.
    #[error("the workers cannot be started")]
    Workers(#[source] io::Error),
}
