//! The certificate of a custom domain: ordered by the engine, or uploaded by the project.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::{Body, GET, Method, Operation, SuccessResponse, WRITE};

/// Uploads a certificate, in place of an earlier one.
pub const PUT_CERTIFICATE: &Operation = &Operation {
    body: Some(Body::required("UploadCertificate", || {
        json!({
            "certificate": "-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n",
            "privateKey": "-----BEGIN PRIVATE KEY-----\n…\n-----END PRIVATE KEY-----\n",
        })
    })),
    refusals: &[409],
    ..Operation::new(
        "upload_project_domain_certificate",
        Method::Put,
        "/api/projects/tunnels/{project_id}/domains/{domain_id}/certificate",
        "Upload a certificate for a verified custom domain",
        WRITE,
        SuccessResponse::json(200, "Domain"),
    )
};

/// Removes the uploaded certificate: the engine orders one again.
pub const DELETE_CERTIFICATE: &Operation = &Operation {
    id: "delete_project_domain_certificate",
    method: Method::Delete,
    path: PUT_CERTIFICATE.path,
    summary: "Remove the uploaded certificate of a custom domain",
    access: WRITE,
    answer: SuccessResponse::NO_CONTENT,
    ..*GET
};

/// Source of the certificate of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DomainCertificateSource {
    /// The engine of the project orders and renews it.
    #[default]
    Engine,
    /// The project uploaded it, and has to replace it before it expires.
    Uploaded,
}

/// The certificate of a domain. Members without a value are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainCertificate {
    /// Source.
    pub source: DomainCertificateSource,
    /// Expiry of the certificate; absent while the engine has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub expires_at: Option<String>,
    /// Reason why the last order of the engine failed, with the text of the certificate authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 1024)]
    pub problem: Option<String>,
    /// Time of the engine's next attempt after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub next_attempt_at: Option<String>,
}

/// A certificate to upload. The output of `Debug` leaves the key out.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UploadCertificate {
    /// The certificate, followed by the certificates of its issuers, PEM. It is valid now and for the
    /// domain.
    #[schema(min_length = 1, max_length = 32768)]
    pub certificate: String,
    /// The private key of the certificate, PEM, without a password. No response contains it.
    #[schema(min_length = 1, max_length = 8192)]
    pub private_key: String,
}

impl fmt::Debug for UploadCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UploadCertificate").finish_non_exhaustive()
    }
}

/// Maximum size of an uploaded chain: ten certificates with RSA keys of 4096 bits have 20 KiB.
pub const MAX_CHAIN_BYTES: usize = 32 * 1024;
/// Maximum size of an uploaded key: one of RSA with 8192 bits has 6.4 KiB.
pub const MAX_KEY_BYTES: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_leaves_the_key_out() {
        let upload = UploadCertificate {
            certificate: "chain".to_owned(),
            private_key: "c2VjcmV0".to_owned(),
        };
        let printed = format!("{upload:?}");
        assert!(!printed.contains("c2VjcmV0"), "{printed}");
    }
}
