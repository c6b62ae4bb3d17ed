//! Who issued, rotated and revoked which credential: entries in the transaction that does it.

use jiff::Timestamp;
use serde_json::json;
use store::Tx;
use store::audit::{self, Entry};
use types::id::{AuditId, CredentialId, UserId};

use crate::caller::Principal;
use crate::problem::Answer;
use crate::random;
use crate::wire::unix_millis;

/// What was done to a credential.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Issued,
    Rotated,
    Revoked,
}

pub(super) async fn record(
    tx: &mut Tx,
    who: &Principal,
    action: Action,
    credential: CredentialId,
    now: Timestamp,
) -> Answer<()> {
    let by = (who.user.id, who.source.credential());
    record_by(tx, by, action, credential, now).await
}

/// The same where nobody called: by a user and, where there was one, a credential.
pub(super) async fn record_by(
    tx: &mut Tx,
    (user, with): (UserId, Option<CredentialId>),
    action: Action,
    credential: CredentialId,
    now: Timestamp,
) -> Answer<()> {
    let action = match action {
        Action::Issued => "credential.issued",
        Action::Rotated => "credential.rotated",
        Action::Revoked => "credential.revoked",
    };
    let entry = Entry {
        id: AuditId::new(unix_millis(now), random::bytes()?),
        workspace_id: None,
        actor_user_id: Some(user),
        actor_credential_id: with,
        action: action.to_owned(),
        target_kind: "credential".to_owned(),
        target_id: credential.to_string(),
        details: json!({}),
        ip: None,
        created_at: now,
    };
    Ok(audit::insert(tx, &entry).await?)
}
