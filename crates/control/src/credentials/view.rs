//! A stored credential as the API shows it.

use api::control::credentials::{Credential, CredentialKind};
use store::credentials::{self as stored, Kind};

use crate::wire::date;

pub(super) fn view(credential: &stored::Credential) -> Credential {
    Credential {
        id: credential.id.to_string(),
        kind: match credential.kind {
            Kind::Pat => CredentialKind::Pat,
            Kind::App => CredentialKind::App,
            Kind::Mtls => CredentialKind::Mtls,
        },
        name: credential.name.clone(),
        token_endpoint: credential.token_endpoint.clone(),
        oauth_client_id: credential.oauth_client.clone(),
        fingerprint: credential.certificate_fingerprint.as_deref().map(hex),
        // A name that this version does not know gives nothing, and is not shown.
        permissions: credential
            .permissions
            .as_ref()
            .map(|names| names.iter().flat_map(|name| name.parse()).collect()),
        resources: credential.resources.clone(),
        created_at: date(credential.created_at),
        expires_at: credential.expires_at.map(date),
        last_used_at: credential.last_used_at.map(date),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .flatten()
        .collect()
}
