//! `POST /api/tokens`: delegated tokens, which never exceed the permissions of their parent.

use std::sync::Arc;

use api::control::tokens::{
    DEFAULT_TTL_SECONDS, MAX_TTL_SECONDS, MINT_TOKEN, MintToken, MintedToken,
};
use axum::extract::State;
use axum::{Json, Router};
use credentials::{Identity, MintRequest, Provenance, TokenKind, mint_from};
use jiff::{SignedDuration, Timestamp};
use types::id::{EventId, UserId, unix_millis};
use types::problem::Problem;

use crate::app::App;
use crate::caller::{Caller, Principal, TokensCreate};
use crate::credentials::delegation;
use crate::credentials::delegation::{Grant, RequestedLimits};
use crate::http_api::extract::Body;
use crate::http_api::problem::HandlerResult;
use crate::http_api::route::OperationRouter as _;
use crate::http_api::wire::date;
use crate::runtime::metrics;
use crate::runtime::random;

/// Route for minting.
pub fn routes() -> Router<Arc<App>> {
    Router::new().serve(MINT_TOKEN, mint)
}

async fn mint(
    Caller { principal: who, .. }: Caller<TokensCreate>,
    State(app): State<Arc<App>>,
    Body(body): Body<MintToken>,
) -> HandlerResult<Json<MintedToken>> {
    let targets = [who.resources.as_ref(), body.resources.as_ref()];
    delegation::refuse_suspended(&app, targets).await?;
    let minted = delegate(&app, &who, body)?;
    metrics::minted("auth");
    Ok(Json(minted))
}

/// Mints a token of type `auth` for the caller's user.
pub fn delegate(app: &App, who: &Principal, asked: MintToken) -> HandlerResult<MintedToken> {
    let now = app.now();
    let ttl = asked.ttl_seconds.unwrap_or(DEFAULT_TTL_SECONDS);
    if !(1..=MAX_TTL_SECONDS).contains(&ttl) {
        let detail = format!("ttlSeconds is not an integer from 1 to {MAX_TTL_SECONDS}");
        return Err(Problem::invalid_request(detail)
            .with_field("ttlSeconds")
            .into());
    }
    let asked_end = now.saturating_add(SignedDuration::from_secs(i64::from(ttl)));
    let requested = RequestedLimits {
        permissions: asked.permissions,
        resources: asked.resources,
        expires_at: Some(asked_end.unwrap_or(Timestamp::MAX)),
    };
    let grant = Grant::of_token(who, requested, app.config.compat_rstream)?;
    let request = mint_request(TokenKind::Auth, who.user.id, &grant, now);
    let request = request.ok_or_else(Problem::internal)?;
    let provenance = Provenance {
        issuer: app.config.base_url.clone(),
        id: token_id(now)?,
        source: credentials::Source::Credential {
            id: who.source.id().to_owned(),
            updated_at: date(who.source_updated_at),
        },
    };
    let token = mint_from(
        &app.keys.signing(),
        &request,
        Some(&provenance),
        now.as_second(),
    )?;
    let lives = i64::from(request.ttl_seconds.unwrap_or_default());
    let expires_at = Timestamp::from_second(now.as_second().saturating_add(lives));
    Ok(MintedToken {
        token: text(&token)?,
        expires_at: date(expires_at.map_err(|_| Problem::internal())?),
    })
}

/// A token for a user, with the limits of a grant. If the grant is about to expire, the token is
/// valid for a second, because the caller's credential was valid a moment ago. `None` if the expiry
/// is beyond the range of a token.
pub(crate) fn mint_request(
    kind: TokenKind,
    user: UserId,
    grant: &Grant,
    now: Timestamp,
) -> Option<MintRequest> {
    let seconds = |end: Timestamp| end.as_second().saturating_sub(now.as_second()).max(1);
    let ttl_seconds = match grant.expires_at() {
        Some(end) => Some(u32::try_from(seconds(end)).ok()?),
        None => None,
    };
    Some(MintRequest {
        kind,
        identity: Identity::User(user.to_string()),
        ttl_seconds,
        permissions: grant.permissions().map(|set| set.iter().collect()),
        resources: grant.resources().cloned(),
    })
}

/// A token id for `jti`.
pub(crate) fn token_id(now: Timestamp) -> HandlerResult<String> {
    // Any id that sorts by time is suitable. It refers to no stored object.
    let id = EventId::new(unix_millis(now), random::bytes()?);
    Ok(id.as_str().replacen(EventId::PREFIX, "tok", 1))
}

/// The text of a new token, for the only response that contains it.
pub(crate) fn text(token: &credentials::Secret) -> HandlerResult<String> {
    let text = String::from_utf8(token.expose().to_vec());
    Ok(text.map_err(|_| Problem::internal())?)
}
