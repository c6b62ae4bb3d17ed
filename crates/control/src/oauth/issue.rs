//! Issuing a token for an approval. Both grants use this.

use std::net::IpAddr;
use std::sync::Arc;

use api::control::oauth::TokenResponse;
use credentials::AccessClaims;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use store::users::{self, Status};
use store::{Conflict, Tx, credentials as stored, sessions};
use types::id::{CredentialId, SessionId, UserId};
use types::permission::Permissions;

use super::clients::Client;
use super::error::{Code, OauthError};
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::credentials::tokens::text;
use crate::credentials::{issue_access_token, require_credential_quota};
use crate::people::notices::{self, Notice};
use crate::people::session::{is_idle, later};
use crate::runtime::metrics;

/// An approval of a user, as it was stored.
pub(super) struct ApprovedGrant {
    pub(super) user: UserId,
    pub(super) session: SessionId,
    pub(super) permissions: Vec<String>,
    pub(super) resources: Option<Value>,
}

/// Issues the token in the transaction that used the approval. `None` means that the token's public
/// id of 32 bits is taken, and the caller has to try again.
///
/// The session of the approval must still exist. A user who ends a session also ends pending
/// approvals of that session.
pub(super) async fn issue(
    app: &Arc<App>,
    mut tx: Tx,
    client: &Client,
    approved: ApprovedGrant,
    credential: CredentialId,
    ip: IpAddr,
) -> Result<Option<TokenResponse>, OauthError> {
    let now = app.now();
    let not_approved = || Code::InvalidGrant.with_description("the approval is no longer valid");
    let user = users::by_id(&mut tx, approved.user).await?;
    let user = user.filter(|user| user.status == Status::Active);
    let user = user.ok_or_else(not_approved)?;
    let live = sessions::of_user(&mut tx, approved.user, now).await?;
    let is_live =
        |session: &sessions::Session| session.id == approved.session && !is_idle(session, now);
    if !live.iter().any(is_live) {
        return Err(not_approved());
    }
    let scope: Permissions = approved
        .permissions
        .iter()
        .flat_map(|name| name.parse())
        .collect();
    let claims = AccessClaims {
        client_id: client.id().to_owned(),
        resource: app.config.base_url.clone(),
        scope,
    };
    // The token has whole seconds.
    let starts_at = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let times = (now, later(starts_at, LIFETIME));
    let name = client.name();
    let resources = approved.resources;
    let mut issued = issue_access_token(app, approved.user, name, claims, resources, times)?;
    issued.credential.id = credential;
    match stored::insert(&mut tx, &issued.credential).await {
        Err(store::Error::Conflict(Conflict::TokenEndpointTaken)) => return Ok(None),
        other => other?,
    }
    require_credential_quota(&mut tx, approved.user, now).await?;
    let (action, target) = (
        Action::OauthTokenIssued,
        AuditTarget::Credential(credential),
    );
    let details = json!({"client": client.id(), "scope": scope.to_string()});
    let actor = Actor::user(approved.user).with_ip(ip);
    audit::record_with(&mut tx, &actor, None, action, target, details, now).await?;
    tx.commit().await?;
    metrics::minted(issued.credential.kind.as_str());
    let notice = Notice::ClientLinked(name.to_owned());
    notices::send(app, &user, &notice, ip, now);
    let token = issued.token.as_ref().map(text).transpose()?;
    Ok(Some(TokenResponse {
        access_token: token.unwrap_or_default(),
        token_type: "Bearer".to_owned(),
        expires_in: u32::try_from(LIFETIME.as_secs()).unwrap_or_default(),
        scope: scope.to_string(),
    }))
}

/// OA-7: after 90 days the user has to approve the client again.
const LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);
