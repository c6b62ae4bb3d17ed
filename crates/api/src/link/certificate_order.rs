//! The record about a certificate that an engine orders.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// State of the certificate that an engine orders for a custom domain of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateOrderRecord {
    /// The project that has the domain.
    pub project_id: String,
    /// The name of the domain in A-labels, with the `*.` of a wildcard.
    pub hostname: String,
    /// Expiry of the certificate; absent until there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Reason of the last failure with the text of the authority, of at most [`MAX_PROBLEM_BYTES`];
    /// absent after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Time of the next attempt after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
}

/// Maximum length of the reason in a [`CertificateOrderRecord`]. Ten thousand domains have 10 MB.
pub const MAX_PROBLEM_BYTES: usize = 1_024;
