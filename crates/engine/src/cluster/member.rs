//! This engine as a member of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::directory::ClusterDirectory;
use super::tls::ClusterFiles;

/// This engine as a member of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterMember {
    /// Id of the cluster, in lower case. It is a label of a host name, such as `prod`.
    pub cluster: String,
    /// Id of this engine, such as `engine-1`. The certificate contains both ids.
    pub engine: String,
    /// Address of the listener for other engines.
    pub listen: SocketAddr,
    /// The files of the certificate.
    pub files: ClusterFiles,
    /// The names that the other engines hold.
    pub directory: Arc<dyn ClusterDirectory>,
}

/// Reasons why an engine cannot be a member of its cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// It is not a label of a host name in lower case.
    #[error("the id of the {0} is not a label of a host name in lower case, such as `prod`")]
    Id(&'static str),
    /// A file cannot be read, or is not in PEM.
    #[error("{}: {problem}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Description of the error.
        problem: String,
    },
    /// The certificate is not the one of this engine.
    #[error("{}: the certificate has no name {name}", .path.display())]
    Name {
        /// The certificate.
        path: PathBuf,
        /// The missing name.
        name: String,
    },
    /// The certificate and its key do not match, or the authority cannot be used.
    #[error("the certificate cannot be used: {0}")]
    Tls(String),
}
