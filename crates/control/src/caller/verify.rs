//! Verification of a bearer token: first the signature, then the stored credential.

use std::sync::Arc;

use ::credentials::limits::{both_resources, workspace_resources};
use ::credentials::{Identity, Keyring, Limits, TokenKind, TokenRefusal, VerifiedToken};
use api::control::tokens::MAX_TTL_SECONDS;
use api::control::whoami::CallerKind;
use jiff::Timestamp;
use serde_json::Value;
use store::SecretHash;
use store::callers::{self as stored, CallerCredential, SessionCaller};
use store::credentials::{self, Kind};
use store::users::{Status, User};
use types::id::{CredentialId, SessionId};
use types::problem::Problem;

use super::principal::{Principal, Source};
use super::signature_cache::{CachedSignature, Signer};
use super::token::UnverifiedClaims;
use crate::app::App;
use crate::http_api::extract::ClientIp;
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::http_api::rate_limit;
use crate::people::session;

/// Verifies a token. All refusals look the same to the caller. The log has the reason.
pub(super) async fn principal(
    app: &App,
    token: &str,
    from: Option<ClientIp>,
) -> HandlerResult<Principal> {
    let now = app.now();
    let presented = PresentedToken::read(app, token, now)?;
    // The unverified claims select the key. The key then proves that the selection is right.
    let found = if presented.claims.is_app {
        of_application(app, &presented).await?
    } else {
        of_platform(app, &presented).await?
    };
    rate_limit::mark_authenticated();
    if let Some(credential) = found.note_use {
        record_use(app, credential, from, now).await;
    }
    Ok(found.principal)
}

/// A token during its verification.
struct PresentedToken<'a> {
    token: &'a str,
    claims: Arc<UnverifiedClaims>,
    /// The cached signature for any key, if there is one.
    cached: Option<CachedSignature>,
    now: Timestamp,
}

impl<'a> PresentedToken<'a> {
    fn read(app: &App, token: &'a str, now: Timestamp) -> HandlerResult<Self> {
        if token.len() > ::credentials::MAX_TOKEN_BYTES {
            return Err(refused(TokenRefusal::TooLong));
        }
        let verdict = app.signature_cache.get(&::credentials::digest(token));
        let claims = match &verdict {
            Some(verdict) => Arc::clone(&verdict.claims),
            None => Arc::new(
                UnverifiedClaims::read(token, &app.config.base_url)
                    .ok_or_else(|| refused(TokenRefusal::Form))?,
            ),
        };
        Ok(Self {
            token,
            claims,
            cached: verdict,
            now,
        })
    }

    /// The result of a verification with this signer's key, from the cache or new.
    fn verified(
        &self,
        app: &App,
        signer: Signer,
        keys: &Keyring,
    ) -> Result<Arc<VerifiedToken>, TokenRefusal> {
        let now = self.now.as_second();
        let earlier = self.cached.as_ref();
        let earlier = earlier.filter(|verdict| verdict.signer == signer);
        if let Some(verdict) = earlier.filter(|verdict| !verdict.verified.is_expired(now)) {
            return Ok(Arc::clone(&verdict.verified));
        }
        let verified = Arc::new(::credentials::verify(self.token, keys, now)?);
        let verdict = CachedSignature {
            claims: Arc::clone(&self.claims),
            verified: Arc::clone(&verified),
            signer,
        };
        app.signature_cache.put(self.token, verdict);
        Ok(verified)
    }
}

/// A token with a valid credential.
struct AuthenticatedCaller {
    principal: Principal,
    /// The credential whose use is to be recorded.
    note_use: Option<CredentialId>,
}

/// A token that an application signed with its own key. The key is stored, so the store is read
/// first.
async fn of_application(
    app: &App,
    presented: &PresentedToken<'_>,
) -> HandlerResult<AuthenticatedCaller> {
    let none = || refused("the application does not exist");
    let id = presented.claims.application.ok_or_else(none)?;
    let row = {
        let mut read = app.store.read().await?;
        stored::by_credential(&mut read, id, presented.claims.id.as_deref()).await?
    };
    let row = row.filter(|row| row.credential.kind == Kind::App);
    let row = row.ok_or_else(none)?;
    let pem = row.credential.public_key.as_deref().unwrap_or_default();
    let key = ::credentials::digest(pem);
    let keys = Keyring::new()
        .with_compat(app.config.compat_rstream)
        .with_pem(pem)
        .map_err(|_| refused("the application has no key"))?;
    let signer = Signer::Application { id, key };
    let verified = presented.verified(app, signer, &keys).map_err(refused)?;
    if verified.kind != TokenKind::App {
        return Err(refused("an application may only sign tokens of type `app`"));
    }
    if !is_short_lived(&verified) {
        return Err(refused(
            "a token of an application is valid for an hour at most",
        ));
    }
    if let Some(user) = &verified.user_id
        && user != row.user.id.as_str()
    {
        return Err(refused("the application belongs to another user"));
    }
    of_credential(app, row, &verified, presented, CallerKind::App)
}

/// A token of an application cannot be revoked without revoking the application. So it must have an
/// expiry, and a near one.
fn is_short_lived(verified: &VerifiedToken) -> bool {
    verified.lives_at_most(i64::from(MAX_TTL_SECONDS))
}

/// A token that the platform signed.
async fn of_platform(
    app: &App,
    presented: &PresentedToken<'_>,
) -> HandlerResult<AuthenticatedCaller> {
    let verify = || {
        let key_set = app.keys.key_set();
        let epoch = key_set.epoch();
        presented.verified(app, Signer::Platform { epoch }, key_set.keyring())
    };
    let mut verified = verify();
    if let (Err(TokenRefusal::Signature), Some(kid)) = (&verified, &presented.claims.kid)
        && app
            .keys
            .fetch_unknown_key(&app.store, kid, presented.now)
            .await
    {
        verified = verify();
    }
    let verified = verified.map_err(refused)?;
    match verified.kind {
        TokenKind::Pat => personal(app, &verified, presented).await,
        TokenKind::Auth => delegated(app, &verified, presented).await,
        TokenKind::App => Err(refused(
            "the platform does not sign tokens for applications",
        )),
    }
}

/// A personal access token is the secret of its credential. It is only found by its hash, so that
/// every process refuses it after its revocation (OA-8).
async fn personal(
    app: &App,
    verified: &VerifiedToken,
    presented: &PresentedToken<'_>,
) -> HandlerResult<AuthenticatedCaller> {
    // The claims of an access token must be complete, consistent, and for this platform (MC-4).
    let client = match &presented.claims.client {
        Some(Err(bad)) => return Err(refused(bad)),
        Some(Ok(client)) => Some(client.as_str()),
        None => None,
    };
    let row = {
        let mut read = app.store.read().await?;
        let hash = SecretHash(verified.digest);
        stored::by_token(&mut read, hash, presented.claims.id.as_deref()).await?
    };
    let row = row.filter(|row| {
        row.credential.kind == Kind::Pat
            && row.credential.oauth_client.as_deref() == client
            && row.credential.token_endpoint == verified.credential_id
            && verified.user_id.as_deref() == Some(row.user.id.as_str())
    });
    let row = row.ok_or_else(|| refused("the personal access token does not exist"))?;
    of_credential(app, row, verified, presented, CallerKind::Pat)
}

/// A delegated token is valid while its source is valid.
async fn delegated(
    app: &App,
    verified: &VerifiedToken,
    presented: &PresentedToken<'_>,
) -> HandlerResult<AuthenticatedCaller> {
    let source = verified.credential_id.as_deref().unwrap_or_default();
    let id = presented.claims.id.as_deref();
    let none = || refused("the credential or session that created the token does not exist");
    let Identity::User(user) = &verified.identity else {
        return Err(none());
    };
    if let Ok(source) = source.parse::<CredentialId>() {
        let row = {
            let mut read = app.store.read().await?;
            stored::by_credential(&mut read, source, id).await?
        };
        let row = row.filter(|row| row.user.id.as_str() == user);
        let row = row.ok_or_else(none)?;
        return of_credential(app, row, verified, presented, CallerKind::Auth);
    }
    let source = source.parse::<SessionId>().map_err(|_| none())?;
    let row = {
        let mut read = app.store.read().await?;
        stored::by_session(&mut read, source, id).await?
    };
    let row = row.filter(|row| row.user.id.as_str() == user);
    of_session(row.ok_or_else(none)?, verified, presented)
}

/// Combines the permissions of a token and its credential.
fn of_credential(
    app: &App,
    row: CallerCredential,
    verified: &VerifiedToken,
    presented: &PresentedToken<'_>,
    kind: CallerKind,
) -> HandlerResult<AuthenticatedCaller> {
    let CallerCredential {
        credential,
        user,
        is_member,
        is_revoked,
    } = row;
    require_active(&user)?;
    if !credential.is_live(presented.now) {
        return Err(refused("the credential behind the token is not valid"));
    }
    // Credentials of a client that was removed from the configuration are not valid, and neither
    // are tokens minted from them.
    if let Some(client) = &credential.oauth_client
        && !app.config.oauth.is_accepted(client)
    {
        return Err(refused("its client is not registered"));
    }
    if !is_member {
        return Err(refused("its user has left the workspace of the credential"));
    }
    if is_revoked {
        return Err(refused("the token was revoked"));
    }
    let workspace = credential.workspace_id.map(|id| id.to_string());
    let limits = Limits::of_stored(
        credential.permissions.as_deref(),
        credential.resources.as_ref(),
        workspace.as_deref(),
        credential.expires_at.map(Timestamp::as_second),
    );
    let own = both_resources(
        credential.resources.clone(),
        workspace.as_deref().map(workspace_resources),
    );
    let used_at = credential.last_used_at;
    let is_stale =
        |used: Timestamp| presented.now.as_second() - used.as_second() >= NOTE_EVERY_SECONDS;
    Ok(AuthenticatedCaller {
        note_use: used_at.is_none_or(is_stale).then_some(credential.id),
        principal: Principal {
            kind,
            user,
            source: Source::Credential(credential.id),
            root: Some(credential.root()),
            source_updated_at: credential.updated_at,
            limits: verified.limits.and(&limits),
            resources: match kind {
                // A delegated token already contains the boundary of its parent.
                CallerKind::Auth => resources_claim(presented),
                _ => both_resources(own, resources_claim(presented)),
            },
        },
    })
}

/// Permissions of a token that was minted from a session.
fn of_session(
    row: SessionCaller,
    verified: &VerifiedToken,
    presented: &PresentedToken<'_>,
) -> HandlerResult<AuthenticatedCaller> {
    require_active(&row.user)?;
    let is_idle = presented.now.duration_since(row.last_seen_at) >= session::IDLE;
    if row.expires_at <= presented.now || is_idle {
        return Err(refused("the session behind the token has ended"));
    }
    if row.is_revoked {
        return Err(refused("the token was revoked"));
    }
    let limits = session::limits(
        row.permissions.as_deref(),
        row.resources.as_ref(),
        row.expires_at,
    );
    Ok(AuthenticatedCaller {
        note_use: None,
        principal: Principal {
            kind: CallerKind::Auth,
            user: row.user,
            source: Source::Session(row.session),
            root: None,
            source_updated_at: row.rotated_at,
            limits: verified.limits.and(&limits),
            resources: resources_claim(presented),
        },
    })
}

fn require_active(user: &User) -> HandlerResult<()> {
    if user.status == Status::Active {
        Ok(())
    } else {
        Err(refused("its user is suspended"))
    }
}

fn resources_claim(presented: &PresentedToken<'_>) -> Option<Value> {
    presented.claims.resources.clone()
}

/// A use is recorded at most once a minute, so that most read requests do not write.
const NOTE_EVERY_SECONDS: i64 = 60;

/// Records the use of a credential. A failure is only logged, so that requests work even if the
/// database is read-only.
async fn record_use(app: &App, credential: CredentialId, from: Option<ClientIp>, now: Timestamp) {
    let from = from.map(|ClientIp(ip)| ip.to_string());
    let noted = async {
        let mut tx = app.store.begin().await?;
        credentials::record_use(&mut tx, credential, from.as_deref(), now).await?;
        tx.commit().await
    };
    if let Err(error) = noted.await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the last use of a credential could not be stored"
        );
    }
}

fn refused(reason: impl std::fmt::Display) -> Refusal {
    tracing::info!(%reason, "a token was refused");
    Problem::invalid_token().into()
}
