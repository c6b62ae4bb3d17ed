//! `POST /oauth/token` (OA-5): redeems codes and approved devices.

use std::sync::Arc;

use api::control::oauth::TokenResponse;
use aws_lc_rs::digest;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use store::device_grants::{self, Status};
use store::oauth_codes::{self, Redeemer};
use store::{SecretHash, credentials};
use types::id::{CredentialId, unix_millis};

use super::clients::{CODE_GRANT, Client, DEVICE_GRANT};
use super::device_authorization::INTERVAL_SECONDS;
use super::error::{Code, OauthError, no_store};
use super::form::ClientForm;
use super::issue::{ApprovedGrant, issue};
use super::scope::resource;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::extract::ClientIp;
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::people::secret_link::LinkSecret;
use crate::runtime::random;

pub(super) async fn token(
    State(app): State<Arc<App>>,
    ip: Result<ClientIp, Refusal>,
    mut form: ClientForm,
) -> Result<Response, OauthError> {
    let ClientIp(ip) = ip?;
    let grant_type = form.take_required("grant_type")?;
    if grant_type != CODE_GRANT && grant_type != DEVICE_GRANT {
        return Err(Code::UnsupportedGrantType.with_description("this grant is not supported"));
    }
    let client = form.client(&app)?;
    if client.is_device() != (grant_type == DEVICE_GRANT) {
        return Err(Code::UnauthorizedClient.with_description("this client may not use this grant"));
    }
    resource(&app.config, form.take("resource").as_deref())?;
    let request = Request {
        app: &app,
        client,
        ip,
    };
    let response = if grant_type == DEVICE_GRANT {
        let code = form.take_required("device_code")?;
        request.device(&code).await?
    } else {
        let code = form.take_required("code")?;
        let redirect_uri = form.take_required("redirect_uri")?;
        let verifier = form.take_required("code_verifier")?;
        request.code(&code, &redirect_uri, &verifier).await?
    };
    Ok(no_store(Json(response).into_response()))
}

struct Request<'a> {
    app: &'a Arc<App>,
    client: Client,
    ip: std::net::IpAddr,
}

impl Request<'_> {
    /// Redeems a code. If a code is used again, another party has seen it. Then the token that was
    /// issued for it is revoked (OA-3, RFC 6749 section 4.1.2), whichever client sends it.
    async fn code(
        &self,
        code: &str,
        redirect_uri: &str,
        verifier: &str,
    ) -> Result<TokenResponse, OauthError> {
        let refused = || Code::InvalidGrant.with_description("this code is not valid");
        if !is_verifier(verifier) {
            return Err(Code::InvalidRequest.with_description("code_verifier has the wrong format"));
        }
        let hash = LinkSecret::parse(code).ok_or_else(refused)?.hash();
        let by = Redeemer {
            client_id: self.client.id(),
            redirect_uri,
            challenge: sha_256(verifier),
        };
        for _ in 0..MAX_DRAWS {
            let (app, id) = (self.app, self.credential_id()?);
            let mut tx = app.store.begin().await?;
            let found = oauth_codes::redeem(&mut tx, SecretHash(hash), by, id, app.now()).await?;
            let Some(found) = found else {
                drop(tx);
                self.revoke_issued_token(SecretHash(hash)).await?;
                return Err(refused());
            };
            let approved = ApprovedGrant {
                user: found.user_id,
                session: found.session_id,
                permissions: found.permissions,
                resources: found.resources,
            };
            if let Some(issued) = issue(app, tx, &self.client, approved, id, self.ip).await? {
                return Ok(issued);
            }
        }
        Err(no_free_id())
    }

    async fn revoke_issued_token(&self, hash: SecretHash) -> HandlerResult<()> {
        let app = self.app;
        let now = app.now();
        let mut tx = app.store.begin().await?;
        let Some(issued) = oauth_codes::redeemed(&mut tx, hash).await? else {
            return Ok(());
        };
        let (user, credential) = (issued.user_id, issued.credential_id);
        if credentials::revoke(&mut tx, user, credential, now).await? {
            tracing::warn!(
                client = self.client.id(),
                "a code was used again: its token was revoked"
            );
            let actor = Actor::anonymous().with_ip(self.ip);
            let (action, target) = (Action::OauthCodeReused, AuditTarget::Credential(credential));
            let details = json!({"client": self.client.id()});
            audit::record_with(&mut tx, &actor, None, action, target, details, now).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    /// Handles the poll of a device for its approval (RFC 8628 section 3.5).
    async fn device(&self, code: &str) -> Result<TokenResponse, OauthError> {
        let refused = || Code::InvalidGrant.with_description("this device code is not valid");
        let hash = LinkSecret::parse(code).ok_or_else(refused)?.hash();
        let hash = SecretHash(hash);
        for _ in 0..MAX_DRAWS {
            let app = self.app;
            let now = app.now();
            let mut tx = app.store.begin().await?;
            let grant = device_grants::by_code(&mut tx, hash).await?;
            let grant = grant.filter(|grant| grant.client_id == self.client.id());
            let grant = grant.ok_or_else(refused)?;
            match grant.status {
                Status::Redeemed => return Err(refused()),
                Status::Denied => {
                    return Err(Code::AccessDenied.with_description("the user denied access"));
                }
                Status::Pending | Status::Approved if grant.expires_at <= now => {
                    return Err(
                        Code::ExpiredToken.with_description("the user did not approve in time")
                    );
                }
                Status::Pending => {
                    let more = i64::from(INTERVAL_SECONDS);
                    let is_in_time = device_grants::poll(&mut tx, hash, more, now).await?;
                    tx.commit().await?;
                    return Err(if is_in_time {
                        Code::AuthorizationPending.with_description("the user has not decided yet")
                    } else {
                        Code::SlowDown
                            .with_description("wait five seconds longer between two polls")
                    });
                }
                Status::Approved => {}
            }
            let id = self.credential_id()?;
            let client_id = self.client.id();
            let grant = device_grants::redeem(&mut tx, hash, client_id, id, now).await?;
            let grant = grant.ok_or_else(refused)?;
            let (Some(user), Some(session)) = (grant.user_id, grant.session_id) else {
                return Err(refused());
            };
            let approved = ApprovedGrant {
                user,
                session,
                permissions: grant.permissions,
                resources: grant.resources,
            };
            if let Some(issued) = issue(app, tx, &self.client, approved, id, self.ip).await? {
                return Ok(issued);
            }
        }
        Err(no_free_id())
    }

    fn credential_id(&self) -> HandlerResult<CredentialId> {
        let now = unix_millis(self.app.now());
        Ok(CredentialId::new(now, random::bytes()?))
    }
}

fn no_free_id() -> OauthError {
    tracing::error!("no free token endpoint was found");
    Code::ServerError.with_description("no id was free")
}

/// RFC 7636 section 4.1.
fn is_verifier(text: &str) -> bool {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (43..=128).contains(&text.len()) && text.bytes().all(is_unreserved)
}

/// Computes the S256 challenge of a verifier (RFC 7636 section 4.6).
fn sha_256(text: &str) -> SecretHash {
    let mut hash = [0; 32];
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    for (byte, given) in hash.iter_mut().zip(digest.as_ref()) {
        *byte = *given;
    }
    SecretHash(hash)
}

/// Four duplicate draws in a row would need billions of tokens.
const MAX_DRAWS: u32 = 4;
