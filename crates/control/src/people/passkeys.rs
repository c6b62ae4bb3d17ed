//! Passkeys of users. Each is a second factor. It is also a complete sign-in if the authenticator
//! itself verifies the user.
//!
//! A passkey that never verified its user (PIN, fingerprint) proves only possession. It is a second
//! factor. It becomes a complete sign-in only once it has verified its owner together with another
//! factor. So a thief of a key without a PIN cannot set one and sign in.

mod authentication;
mod options;

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use store::passkeys::{self, Passkey};
use types::id::{PasskeyId, unix_millis};
use types::problem::Problem;
use webauthn::{Registration, RelyingParty};

pub use self::authentication::{PasskeyResponse, confirm, second_factor, sign_in};
pub use self::options::{creation, request};
use super::accounts;
use super::challenge::{self, Purpose};
use super::notices::{self, Notice};
use super::second_factor::new_recovery_codes;
use super::second_factor::recovery::RecoveryCode;
use super::session::SignedIn;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::problem::HandlerResult;
use crate::runtime::random;

/// The platform as a relying party of Web Authentication.
///
/// # Errors
/// Browsers do not support passkeys at the platform's address.
pub fn relying_party(app: &App) -> HandlerResult<RelyingParty> {
    RelyingParty::for_base_url(&app.config.base_url).ok_or_else(|| Problem::not_found().into())
}

/// True if browsers support passkeys for this platform.
pub fn is_possible(app: &App) -> bool {
    RelyingParty::for_base_url(&app.config.base_url).is_some()
}

/// Outcome of a registration.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The passkey is active. If it is the user's first second factor, these are the recovery
    /// codes.
    Added(Option<Vec<RecoveryCode>>),
    /// The passkey cannot be accepted. The text is for the user.
    Refused(&'static str),
}

/// Registers a passkey. If it is the first second factor, the user's other sessions end. The caller
/// has checked that the user authenticated recently.
pub async fn register(
    app: &Arc<App>,
    who: &SignedIn,
    name: &str,
    sent: Registration<'_>,
    ip: IpAddr,
) -> HandlerResult<Outcome> {
    let now = app.now();
    let name = accounts::parse_name(name)?;
    let mut challenge = None;
    let registered = relying_party(app)?.register(sent, |bytes| {
        let bound_to = who.session.id.to_string();
        let found = challenge::verify(app, Purpose::Register, bound_to.as_bytes(), bytes);
        challenge = found.ok().flatten();
        challenge.is_some()
    });
    let registered = match registered {
        Ok(registered) => registered,
        Err(error) => {
            tracing::debug!(user.id = %who.user.id, %error, "a passkey was not registered");
            return Ok(Outcome::Refused("That did not work. Try again."));
        }
    };
    let mut tx = app.store.begin().await?;
    let is_new = match &challenge {
        Some(challenge) => challenge::spend(&mut tx, challenge).await?,
        None => false,
    };
    if !is_new {
        return Ok(Outcome::Refused("That did not work. Try again."));
    }
    let user = accounts::lock_user(&mut tx, who.user.id).await?;
    let count = passkeys::count(&mut tx, user.id).await?;
    if count >= MAX_PASSKEYS {
        return Ok(Outcome::Refused(
            "You have reached the limit of passkeys. Remove one first.",
        ));
    }
    let passkey = Passkey {
        id: PasskeyId::new(unix_millis(now), random::bytes()?),
        user_id: who.user.id,
        credential_id: registered.credential_id,
        public_key: registered.public_key,
        sign_count: registered.sign_count.into(),
        user_verified: registered.user_verified,
        name,
        created_at: now,
        last_used_at: None,
    };
    match passkeys::insert(&mut tx, &passkey).await {
        Err(error) if error.conflict() == Some(store::Conflict::PasskeyTaken) => {
            return Ok(Outcome::Refused("This passkey is already registered."));
        }
        inserted => inserted?,
    }
    let is_first = count == 0 && user.totp_confirmed_at.is_none();
    let codes = if is_first {
        let codes = new_recovery_codes(&mut tx, who.user.id).await?;
        store::sessions::end_all(&mut tx, who.user.id, Some(who.session.id), now).await?;
        Some(codes)
    } else {
        None
    };
    store::sessions::second_factor(&mut tx, who.session.id, now).await?;
    note(&mut tx, who, Action::PasskeyAdded, ip, now).await?;
    tx.commit().await?;
    notices::send(app, &who.user, &Notice::PasskeyAdded(passkey.name), ip, now);
    Ok(Outcome::Added(codes))
}

/// Removes a passkey and ends the user's other sessions, which the passkey may have started. A
/// missing passkey is not an error. Removing the last second factor deletes the recovery codes. The
/// caller has checked that the user authenticated recently.
pub async fn remove(
    app: &Arc<App>,
    who: &SignedIn,
    id: PasskeyId,
    ip: IpAddr,
) -> HandlerResult<()> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let user = accounts::lock_user(&mut tx, who.user.id).await?;
    if !passkeys::delete(&mut tx, who.user.id, id).await? {
        return Ok(());
    }
    let is_last =
        user.totp_confirmed_at.is_none() && passkeys::count(&mut tx, who.user.id).await? == 0;
    if is_last {
        store::users::set_recovery_codes(&mut tx, who.user.id, &[]).await?;
    }
    store::sessions::end_all(&mut tx, who.user.id, Some(who.session.id), now).await?;
    note(&mut tx, who, Action::PasskeyRemoved, ip, now).await?;
    tx.commit().await?;
    notices::send(app, &who.user, &Notice::PasskeyRemoved, ip, now);
    Ok(())
}

async fn note(
    tx: &mut store::Tx,
    who: &SignedIn,
    action: Action,
    ip: IpAddr,
    now: Timestamp,
) -> HandlerResult<()> {
    let user = who.user.id;
    audit::record(
        tx,
        &Actor::user(user).with_ip(ip),
        None,
        action,
        AuditTarget::User(user),
        now,
    )
    .await
}

/// Limit of passkeys per user, so that a page can show them and a sign-in can list them.
const MAX_PASSKEYS: u64 = 20;
