//! Settings of a link.

use std::path::PathBuf;

use crate::endpoint::{Endpoint, EndpointError, ProbeError};

/// The platform that a process follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// Its address: https, or http on loopback.
    pub url: String,
    /// The file with the secret with which the process connects.
    pub token_file: PathBuf,
    /// Authorities for checking its certificate; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// Directory for the state received from the platform and for unsent reports.
    pub data_dir: PathBuf,
}

impl ControlPlane {
    /// The endpoint for connections to the platform. Reads the file of authorities.
    ///
    /// # Errors
    /// [`EndpointError`]
    pub fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        let (token_file, ca_file) = (self.token_file.clone(), self.ca_file.as_deref());
        Endpoint::new(&self.url, token_file, ca_file)
    }

    /// Connects to the platform once, and asks it if it accepts the secret.
    ///
    /// # Errors
    /// [`ProbeError`]
    pub async fn probe(&self) -> Result<(), ProbeError> {
        self.endpoint()?.probe().await
    }
}
