//! `POST /api/credentials/{credential_id}/rotate`.

use std::sync::Arc;

use api::control::credentials::{IssuedCredential, MAX_OVERLAP_SECONDS, RotateCredential};
use axum::Json;
use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use store::credentials as stored;
use types::permission::Permission;
use types::problem::Problem;

use super::audit::{self, Action};
use super::issue::{Draft, issue, require_no_more, require_room};
use super::material::{Material, Sent};
use super::view::kind;
use crate::app::App;
use crate::caller::{Caller, CredentialsWrite};
use crate::delegation::Grant;
use crate::extract::{OptionalBody, Path};
use crate::problem::Answer;

/// The successor is a credential of its own, with what the old one had; the old one ends with the
/// overlap. Of two that rotate at once, one does.
pub(super) async fn rotate(
    Caller { who, .. }: Caller<CredentialsWrite>,
    State(app): State<Arc<App>>,
    Path(credential_id): Path<String>,
    OptionalBody(body): OptionalBody<RotateCredential>,
) -> Answer<Json<IssuedCredential>> {
    let body = body.unwrap_or_default();
    let overlap = body.overlap_seconds.unwrap_or(0);
    if overlap > MAX_OVERLAP_SECONDS {
        let detail = format!("overlapSeconds is not an integer from 0 to {MAX_OVERLAP_SECONDS}");
        return Err(Problem::invalid_request(detail)
            .with_field("overlapSeconds")
            .into());
    }
    let Ok(id) = credential_id.parse() else {
        return Err(Problem::not_found().into());
    };
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let old = stored::of_user_by_id(&mut tx, who.user.id, id).await?;
    let Some(old) = old.filter(|old| old.revoked_at.is_none()) else {
        return Err(Problem::not_found().into());
    };
    require_no_more(&who, &old)?;
    if old.oauth_client.is_some() {
        // A successor by hand would outlive what was approved (OA-7).
        let detail = "An OAuth client holds this token: the client is linked anew instead.";
        return Err(Problem::conflict().with_detail(detail).into());
    }
    let sent = Sent {
        public_key: body.public_key_pem.as_deref(),
        certificate: body.certificate_pem.as_deref(),
        issuer: body.issuer_pem.as_deref(),
    };
    let material = Material::of(kind(old.kind), sent, now)?;
    // Seconds, as tokens have them: a successor that would not live one is none.
    let has_ended = |end: Timestamp| end.as_second() <= now.as_second();
    if old.expires_at.is_some_and(has_ended) {
        return Err(Problem::conflict().with_detail(ENDED).into());
    }
    let successor = issue(
        &app,
        Draft {
            owner: old.user_id,
            name: old.name.clone(),
            grant: Grant {
                permissions: old.permissions.as_ref().map(|names| parsed(names)),
                resources: old.resources.clone(),
            },
            expires_at: old.expires_at,
            material,
            access: None,
        },
        now,
    )?;
    let new = successor.credential.id;
    let ends_at = now
        .saturating_add(SignedDuration::from_secs(i64::from(overlap)))
        .unwrap_or(Timestamp::MAX);
    if !stored::rotate(&mut tx, who.user.id, id, new, ends_at, now).await? {
        return Err(Problem::conflict().with_detail(ENDED).into());
    }
    stored::insert(&mut tx, &successor.credential).await?;
    require_room(&mut tx, who.user.id, now).await?;
    audit::record(&mut tx, &who, Action::Rotated, id, now).await?;
    tx.commit().await?;
    successor.shown(now).map(Json)
}

const ENDED: &str = "It was rotated already, or has ended.";

fn parsed(names: &[String]) -> Vec<Permission> {
    names.iter().flat_map(|name| name.parse()).collect()
}
