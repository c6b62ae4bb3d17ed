//! `POST /api/credentials/{credential_id}/rotate`.

use std::sync::Arc;

use api::control::credentials::{IssuedCredential, MAX_OVERLAP_SECONDS, RotateCredential};
use axum::Json;
use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use store::credentials as stored;
use types::problem::Problem;

use super::changeable;
use super::issue::{Issuer, NewCredential, issue, lock_issuer, require_credential_quota};
use super::material::{Material, SubmittedMaterial};
use super::view::kind;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::caller::{Caller, CredentialsWrite};
use crate::credentials::delegation::Grant;
use crate::http_api::extract::{ClientIp, OptionalBody, Path};
use crate::http_api::problem::HandlerResult;
use crate::people::notices::{self, Notice};

/// Replaces a credential. The successor is a separate credential with the same permissions. The old
/// one ends with the overlap. Of two concurrent rotations, only one succeeds.
pub(super) async fn rotate(
    Caller { principal: who, .. }: Caller<CredentialsWrite>,
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    Path(credential_id): Path<String>,
    OptionalBody(body): OptionalBody<RotateCredential>,
) -> HandlerResult<Json<IssuedCredential>> {
    let body = body.unwrap_or_default();
    let overlap = body.overlap_seconds.unwrap_or(0);
    if overlap > MAX_OVERLAP_SECONDS {
        let detail = format!("overlapSeconds is not an integer from 0 to {MAX_OVERLAP_SECONDS}");
        return Err(Problem::invalid_request(detail)
            .with_field("overlapSeconds")
            .into());
    }
    let now = app.now();
    let mut tx = app.store.begin().await?;
    lock_issuer(&mut tx, &who, now).await?;
    let old = changeable::find(&mut tx, &who, &credential_id).await?;
    if old.revoked_at.is_some() {
        return Err(Problem::not_found().into());
    }
    let id = old.id;
    if old.oauth_client.is_some() {
        // A manual successor would outlive the approval (OA-7).
        let detail = "This token belongs to an OAuth client: link the client again instead.";
        return Err(Problem::conflict().with_detail(detail).into());
    }
    let sent = SubmittedMaterial {
        public_key: body.public_key_pem.as_deref(),
        certificate: body.certificate_pem.as_deref(),
        issuer: body.issuer_pem.as_deref(),
    };
    let material = Material::of(kind(old.kind), sent, now)?;
    // Tokens expire at whole seconds. A successor that lasts for less than a second is useless.
    let has_ended = |end: Timestamp| end.as_second() <= now.as_second();
    if old.expires_at.is_some_and(has_ended) {
        return Err(Problem::conflict().with_detail(NOT_ROTATABLE).into());
    }
    let successor = issue(
        &app,
        NewCredential {
            owner: old.user_id,
            name: old.name.clone(),
            grant: Grant::of_successor(&old),
            material,
            access: None,
            issuer: Issuer::of_successor(&who, &old),
        },
        now,
    )?;
    let new = successor.credential.id;
    let ends_at = now
        .saturating_add(SignedDuration::from_secs(i64::from(overlap)))
        .unwrap_or(Timestamp::MAX);
    if !stored::rotate(&mut tx, who.user.id, id, new, ends_at, now).await? {
        return Err(Problem::conflict().with_detail(NOT_ROTATABLE).into());
    }
    stored::insert(&mut tx, &successor.credential).await?;
    require_credential_quota(&mut tx, who.user.id, now).await?;
    let (actor, target) = (Actor::caller(&who).with_ip(ip), AuditTarget::Credential(id));
    let details = json!({"successor": new});
    let action = Action::CredentialRotated;
    audit::record_with(&mut tx, &actor, None, action, target, details, now).await?;
    tx.commit().await?;
    let notice = Notice::CredentialIssued(old.name.clone());
    notices::send(&app, &who.user, &notice, ip, now);
    successor.to_response(now).map(Json)
}

const NOT_ROTATABLE: &str = "It was already rotated, or has ended.";
