//! The tunnels that the agents of a project may publish (ED-8).

use api::control::settings::PublicAccessPolicy;
use types::problem::Problem;
use types::tunnel::{Protocol, TunnelProperties};

use super::policy::TunnelPolicy;
use crate::directory::Project;

/// Reasons why a tunnel may not be published in its project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublicationError {
    /// `publicAccessPolicy: forbidden`.
    #[error("the project forbids published tunnels")]
    Forbidden,
    /// `publicAccessPolicy: auth-required`.
    #[error("the project requires `token_auth`, `svc_auth` or `mtls_auth` on published tunnels")]
    ProofNeeded,
    /// `publishedTcpEnabled: false`.
    #[error("published TCP tunnels are not available in this project")]
    Tcp,
}

impl From<PublicationError> for Problem {
    fn from(refused: PublicationError) -> Self {
        Self::new(403, "public_access_not_allowed", "").with_detail(refused.to_string())
    }
}

/// Checks resolved properties when a tunnel is opened. Visits are checked again, with the project's
/// rules at that time.
///
/// # Errors
/// The reason why it may not be published. A private tunnel may always be opened.
pub fn may_publish(
    properties: &TunnelProperties,
    project: &Project,
) -> Result<(), PublicationError> {
    if properties.publish == Some(false) {
        return Ok(());
    }
    let state = project.state();
    let proofs = TunnelPolicy::compile(properties)
        .required_proofs()
        .requires_identity();
    match state.policy.public_access {
        PublicAccessPolicy::Forbidden => Err(PublicationError::Forbidden),
        PublicAccessPolicy::AuthRequired if !proofs => Err(PublicationError::ProofNeeded),
        _ if properties.protocol == Some(Protocol::Tcp) && !state.policy.published_tcp => {
            Err(PublicationError::Tcp)
        }
        PublicAccessPolicy::AuthRequired | PublicAccessPolicy::Allowed => Ok(()),
    }
}
