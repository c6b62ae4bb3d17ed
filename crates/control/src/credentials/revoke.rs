//! `DELETE /api/credentials/{credential_id}`.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use serde_json::json;
use store::credentials as stored;
use types::problem::Problem;

use super::changeable;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::caller::{Caller, CredentialsWrite};
use crate::http_api::extract::{ClientIp, Path, Query};
use crate::http_api::problem::{HandlerResult, bad};

/// Revokes a credential. Tokens that were minted from it become invalid, because every verification
/// checks their source. Credentials that it issued stay valid, unless the caller requests their
/// revocation. In that case the credential itself may have been revoked before.
pub(super) async fn revoke(
    Caller { principal: who, .. }: Caller<CredentialsWrite>,
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    Path(credential_id): Path<String>,
    mut query: Query,
) -> HandlerResult<StatusCode> {
    let with_issued = match query.text("issued").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(bad("issued", "issued must be true or false")),
    };
    query.finish()?;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let id = changeable::find(&mut tx, &who, &credential_id).await?.id;
    let revoked = if with_issued {
        stored::revoke_chain(&mut tx, who.user.id, id, now).await?
    } else if stored::revoke(&mut tx, who.user.id, id, now).await? {
        vec![id]
    } else {
        return Err(Problem::not_found().into());
    };
    let actor = Actor::caller(&who).with_ip(ip);
    for one in revoked {
        let details = if one == id {
            json!({})
        } else {
            json!({"with": id})
        };
        let (action, target) = (Action::CredentialRevoked, AuditTarget::Credential(one));
        audit::record_with(&mut tx, &actor, None, action, target, details, now).await?;
    }
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
