//! Enrollment: the host with the private keys submits the public ones.

use std::sync::Arc;

use api::control::webtty_servers::{
    DeclareWebttyServerCapabilities, EnrollWebttyServer, MAX_CAPABILITIES, MAX_CAPABILITY_BYTES,
    WebttyServer, WebttyServerCapabilities,
};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::webtty_servers as stored;
use tty::identity::{KEY_ALGORITHM, PublicIdentity, SigningPublicKey, encryption_key};
use types::client::check_labels;
use types::problem::Problem;

use super::read::{find_server, to_api};
use super::{locked, record};
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, WebttyServersWrite};
use crate::http_api::extract::{Body, Path};
use crate::http_api::problem::{HandlerResult, bad};

/// Stored data of an enrollment.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EnrollmentRecord {
    pub(super) server_public_key: Option<String>,
    pub(super) server_signing_key_id: Option<String>,
    pub(super) server_signing_public_key: Option<String>,
    pub(super) server_fingerprint: Option<String>,
    pub(super) server_key_algorithm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) capabilities: Option<WebttyServerCapabilities>,
}

/// Enrolls a server. Its keys are permanent, because a host that could replace them could
/// impersonate it. Repeating an enrollment with the same keys changes nothing.
pub(super) async fn enroll(
    Caller { principal: who, .. }: Caller<WebttyServersWrite>,
    State(app): State<Arc<App>>,
    Path((project_id, server_id)): Path<(String, String)>,
    Body(body): Body<EnrollWebttyServer>,
) -> HandlerResult<Json<WebttyServer>> {
    let enrolled = checked(body)?;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let project = locked(&mut tx, &who, &project_id).await?;
    access::require_usable(&project)?;
    let server = find_server(&mut tx, &project, &server_id).await?;
    if let Some(kept) = &server.enrolment {
        let same = ["serverPublicKey", "serverSigningPublicKey"];
        let new = json!(enrolled);
        if same.iter().all(|key| kept.get(key) == new.get(key)) {
            return Ok(Json(to_api(&server, &project)?));
        }
        let detail = "The server is already enrolled with other keys; register a host with new keys as a \
             new server.";
        return Err(Problem::new(409, "already_enrolled", detail).into());
    }
    stored::enrol(&mut tx, project.id, server.id, &json!(enrolled), now).await?;
    let action = "webtty_server.enrolled";
    record(&mut tx, &who, &project, action, &server, now).await?;
    let server = find_server(&mut tx, &project, &server_id).await?;
    tx.commit().await?;
    Ok(Json(to_api(&server, &project)?))
}

fn checked(body: EnrollWebttyServer) -> HandlerResult<EnrollmentRecord> {
    if body.server_key_algorithm != KEY_ALGORITHM {
        let detail = format!("the algorithm must be {KEY_ALGORITHM}");
        return Err(bad("serverKeyAlgorithm", detail));
    }
    let encryption = encryption_key(&body.server_public_key)
        .map_err(|_| bad("serverPublicKey", "not an X25519 key in base64url"))?;
    let signing = SigningPublicKey::parse(&body.server_signing_public_key).map_err(|_| {
        let detail = "not a P-256 public key as DER in base64url";
        bad("serverSigningPublicKey", detail)
    })?;
    if signing.id() != body.server_signing_key_id {
        return Err(bad("serverSigningKeyId", "not the id of the signing key"));
    }
    let identity = PublicIdentity {
        encryption,
        signing,
    };
    let fingerprint = identity.fingerprint();
    if body
        .server_fingerprint
        .is_some_and(|given| given != fingerprint)
    {
        let detail = "not the fingerprint of these keys";
        return Err(bad("serverFingerprint", detail));
    }
    if let Some(capabilities) = &body.capabilities {
        check(capabilities)?;
    }
    Ok(EnrollmentRecord {
        server_public_key: Some(body.server_public_key),
        server_signing_key_id: Some(body.server_signing_key_id),
        server_signing_public_key: Some(body.server_signing_public_key),
        server_fingerprint: Some(fingerprint),
        server_key_algorithm: Some(body.server_key_algorithm),
        capabilities: body.capabilities.map(WebttyServerCapabilities::from),
    })
}

fn check(capabilities: &DeclareWebttyServerCapabilities) -> HandlerResult<()> {
    let lists = [
        ("capabilities.transports", &capabilities.transports),
        (
            "capabilities.execution_modes",
            &capabilities.execution_modes,
        ),
        ("capabilities.encryption", &capabilities.encryption),
    ];
    for (field, words) in lists {
        let is_word = |word: &String| {
            (1..=MAX_CAPABILITY_BYTES).contains(&word.len()) && !word.chars().any(char::is_control)
        };
        if words.len() > MAX_CAPABILITIES || !words.iter().all(is_word) {
            let detail = format!(
                "at most {MAX_CAPABILITIES} words of 1 to {MAX_CAPABILITY_BYTES} bytes each"
            );
            return Err(bad(field, detail));
        }
    }
    check_labels(&capabilities.labels).map_err(|error| {
        let field = format!("capabilities.{}", error.field);
        bad(&field, error.message)
    })
}
