//! Sign-out together with the provider: the provider ends sessions here (OpenID Connect
//! Back-Channel Logout 1.0), and a sign-out here continues at the provider (RP-Initiated Logout
//! 1.0).

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::json;
use store::sessions::{self, ProviderSession};
use store::{SecretHash, Tx, used_challenges};

use super::logout_token::LogoutToken;
use super::provider::{Provider, ProviderError};
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::http_api::rate_limit;

/// Reasons that no session was ended.
#[derive(Debug)]
pub enum LogoutError {
    /// The token is invalid, or the keys of the provider are unavailable.
    Provider(ProviderError),
    /// The token was used before.
    Repeated,
    /// Internal failure.
    Failed(Refusal),
}

impl From<ProviderError> for LogoutError {
    fn from(error: ProviderError) -> Self {
        Self::Provider(error)
    }
}

impl<R: Into<Refusal>> From<R> for LogoutError {
    fn from(error: R) -> Self {
        Self::Failed(error.into())
    }
}

/// Ends the sessions that a logout token names, and with them those at tunnels. Returns their
/// number.
pub async fn end_sessions(
    app: &App,
    provider: &Provider,
    token: &str,
) -> Result<usize, LogoutError> {
    let now = app.now();
    let logout = provider.check_logout(token, now).await?;
    let issuer = provider.config().issuer.as_str();
    let id = credentials::digest(&format!("logout {issuer} {}", logout.id));
    let mut tx = app.store.begin().await?;
    if !used_challenges::spend(&mut tx, SecretHash(id), logout.ends_at).await? {
        return Err(LogoutError::Repeated);
    }
    // A provider may sign out many users at once, which must not exceed the limit of a source.
    rate_limit::mark_authenticated();
    let ended = named_sessions(&mut tx, issuer, &logout).await?;
    end(&mut tx, &Actor::anonymous(), issuer, &ended, now).await?;
    tx.commit().await?;
    Ok(ended.len())
}

/// The sessions that the token names: those of its `sid`, or all of its user without a `sid`.
async fn named_sessions(
    tx: &mut Tx,
    issuer: &str,
    logout: &LogoutToken,
) -> Result<Vec<ProviderSession>, store::Error> {
    let mut named = Vec::new();
    if let Some(sid) = &logout.sid {
        let of_sid = sessions::of_sid(tx, issuer, sid).await?;
        let subject = logout.subject.as_ref();
        let is_theirs =
            |one: &ProviderSession| subject.is_none_or(|subject| one.openid_subject == *subject);
        named.extend(of_sid.into_iter().filter(is_theirs));
    }
    if let Some(subject) = &logout.subject {
        let of_subject = sessions::of_subject(tx, issuer, subject).await?;
        // An ID token without `sid` does not name its session at the provider.
        let is_named = |one: &ProviderSession| logout.sid.is_none() || one.openid_sid.is_none();
        named.extend(of_subject.into_iter().filter(is_named));
    }
    Ok(named)
}

/// Ends sessions that the provider started.
pub(super) async fn end(
    tx: &mut Tx,
    actor: &Actor,
    issuer: &str,
    ended: &[ProviderSession],
    now: Timestamp,
) -> HandlerResult<()> {
    for one in ended {
        sessions::end_by_id(tx, one.id, now).await?;
    }
    let users: BTreeSet<_> = ended.iter().map(|one| one.user_id).collect();
    for user in users {
        let (action, target) = (Action::SessionsEnded, AuditTarget::User(user));
        let details = json!({"openid": issuer});
        audit::record_with(tx, actor, None, action, target, details, now).await?;
    }
    Ok(())
}

/// Returns the address of the provider's sign-out page, for a browser that was signed out here.
/// `None` if the session was not started by the provider, or the provider has no such page. The
/// sign-out here is complete in either case.
pub async fn end_session_address(
    app: &App,
    session: Option<&ProviderSession>,
    next: Option<&str>,
) -> Option<String> {
    let provider = app.people.openid.as_ref()?;
    let is_of_provider =
        |session: &&ProviderSession| session.openid_issuer == provider.config().issuer;
    session.filter(is_of_provider)?;
    let back = app.config.url(SIGNED_OUT);
    let next = next.filter(|next| next.len() <= MAX_NEXT_BYTES);
    match provider.end_session_url(&back, next, app.now()).await {
        Ok(address) => address,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a user was not signed out at the OpenID provider"
            );
            None
        }
    }
}

/// Path to which the provider returns the browser.
pub const SIGNED_OUT: &str = "/login/openid/signed-out";

/// Path at which the provider ends sessions.
pub const BACK_CHANNEL_LOGOUT: &str = "/login/openid/back-channel-logout";

/// Limit for the path to continue at. It is part of the address, whose length servers limit.
const MAX_NEXT_BYTES: usize = 2048;
