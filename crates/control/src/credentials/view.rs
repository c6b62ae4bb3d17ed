//! Conversion of a stored credential into an API response.

use api::control::credentials::{Credential, CredentialKind, CredentialStatus};
use jiff::Timestamp;
use store::credentials::{self as stored, Kind};

use crate::http_api::wire::date;

pub(super) fn view(credential: &stored::Credential, now: Timestamp) -> Credential {
    Credential {
        id: credential.id.to_string(),
        kind: kind(credential.kind),
        name: credential.name.clone(),
        status: if credential.is_live(now) {
            CredentialStatus::Active
        } else {
            CredentialStatus::Expired
        },
        token_endpoint: credential.token_endpoint.clone(),
        oauth_client_id: credential.oauth_client.clone(),
        fingerprint: credential
            .certificate_fingerprint
            .as_deref()
            .map(hex::encode),
        issuer_fingerprint: credential.issuer_fingerprint.as_deref().map(hex::encode),
        public_key_pem: credential.public_key.clone(),
        // A permission that this version does not have grants nothing, and is not shown.
        permissions: credential
            .permissions
            .as_ref()
            .map(|names| names.iter().flat_map(|name| name.parse()).collect()),
        resources: credential.resources.clone(),
        created_at: date(credential.created_at),
        expires_at: credential.expires_at.map(date),
        last_used_at: credential.last_used_at.map(date),
        last_used_ip: credential.last_used_ip.clone(),
        rotated_to: credential.rotated_to.map(|id| id.to_string()),
        issued_by: credential.issued_by.map(|id| id.to_string()),
    }
}

pub(super) const fn kind(stored: Kind) -> CredentialKind {
    match stored {
        Kind::Pat => CredentialKind::Pat,
        Kind::App => CredentialKind::App,
        Kind::Mtls => CredentialKind::Mtls,
    }
}
