//! `POST /oauth/revoke` (OA-5, RFC 7009).

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use serde_json::json;
use store::{SecretHash, credentials};

use super::clients::Client;
use super::error::{Code, OauthError, no_store};
use super::form::ClientForm;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::extract::ClientIp;
use crate::http_api::problem::Refusal;

/// Revokes the given token. Texts that are not a client's token, or not valid any more, count as
/// success, because the token does not work (section 2.2).
///
/// `client_id` may be missing, because the published SDKs do not send it. A holder of the token can
/// do more harm with it than to revoke it.
pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    ip: Result<ClientIp, Refusal>,
    mut form: ClientForm,
) -> Result<Response, OauthError> {
    let ClientIp(ip) = ip?;
    let client = form.optional_client(&app)?;
    let token = form.take_required("token")?;
    let now = app.now();
    let hash = SecretHash(::credentials::digest(&token));
    let mut tx = app.store.begin().await?;
    let found = credentials::by_token(&mut tx, hash).await?;
    let held = found.and_then(|found| Some((found.oauth_client?, found.user_id, found.id)));
    let Some((holder, user, id)) = held else {
        return Ok(done());
    };
    if client.is_some_and(|client: Client| client.id() != holder) {
        return Err(
            Code::UnauthorizedClient.with_description("this token belongs to another client")
        );
    }
    if credentials::revoke(&mut tx, user, id, now).await? {
        let actor = Actor::user(user).with_ip(ip);
        let (action, target) = (Action::OauthTokenRevoked, AuditTarget::Credential(id));
        let details = json!({"client": holder});
        audit::record_with(&mut tx, &actor, None, action, target, details, now).await?;
        tx.commit().await?;
    }
    Ok(done())
}

fn done() -> Response {
    no_store(StatusCode::OK.into_response())
}
