//! Passkeys of people: as a second factor, and as a whole sign-in where the authenticator itself
//! makes sure who it is.
//!
//! A passkey that never asked for a PIN or a finger proves that somebody holds it, and no more. It
//! is a second factor; it becomes a whole sign-in only once it has verified its owner beside
//! another proof. So whoever finds a key without a PIN cannot set one and walk in.

mod options;
mod shown;

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use store::passkeys::{self, Passkey};
use types::id::PasskeyId;
use types::problem::Problem;
use webauthn::{Registration, RelyingParty};

pub use self::options::{creation, request};
pub use self::shown::{PasskeyResponse, confirm, second_factor, sign_in};
use super::accounts;
use super::challenge::{self, Purpose};
use super::notices::{self, Notice};
use super::recovery::RecoveryCode;
use super::second_factor::new_recovery_codes;
use super::session::SignedIn;
use crate::app::App;
use crate::audit::{self, Action, Actor, Target};
use crate::problem::Answer;
use crate::random;
use crate::wire::unix_millis;

/// The platform as passkeys know it.
///
/// # Errors
/// It is served where browsers have none.
pub fn relying_party(app: &App) -> Answer<RelyingParty> {
    RelyingParty::at(&app.config.base_url).ok_or_else(|| Problem::not_found().into())
}

/// Whether browsers have passkeys for this platform at all.
pub fn is_possible(app: &App) -> bool {
    RelyingParty::at(&app.config.base_url).is_some()
}

/// What came of a registration.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The passkey is in force. Where it is the person's first second factor, these are the
    /// recovery codes.
    Added(Option<Vec<RecoveryCode>>),
    /// It cannot be taken, in words for the person.
    Refused(&'static str),
}

/// Registers a passkey, and ends the person's other sessions where it is the first second factor.
/// The caller has made sure of a recent proof.
pub async fn register(
    app: &Arc<App>,
    who: &SignedIn,
    name: &str,
    sent: Registration<'_>,
    ip: IpAddr,
) -> Answer<Outcome> {
    let now = app.now();
    let name = accounts::name(name)?;
    let mut challenge = None;
    let registered = relying_party(app)?.register(sent, |bytes| {
        let bound_to = who.session.id.to_string();
        let found = challenge::recognise(app, Purpose::Register, bound_to.as_bytes(), bytes);
        challenge = found.ok().flatten();
        challenge.is_some()
    });
    let registered = match registered {
        Ok(registered) => registered,
        Err(error) => {
            tracing::debug!(user.id = %who.user.id, %error, "a passkey was not registered");
            return Ok(Outcome::Refused("That did not work. Try once more."));
        }
    };
    let mut tx = app.store.begin().await?;
    let is_new = match &challenge {
        Some(challenge) => challenge::spend(&mut tx, challenge).await?,
        None => false,
    };
    if !is_new {
        return Ok(Outcome::Refused("That did not work. Try once more."));
    }
    let user = accounts::locked(&mut tx, who.user.id).await?;
    let count = passkeys::count(&mut tx, user.id).await?;
    if count >= MOST {
        return Ok(Outcome::Refused(
            "You have as many passkeys as there can be. Remove one first.",
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
            return Ok(Outcome::Refused("This passkey is registered already."));
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

/// Takes a passkey away and ends the person's other sessions, which it may have begun; one that is
/// not there is gone already. With the last second factor go the recovery codes. The caller has made sure of a recent proof.
pub async fn remove(app: &Arc<App>, who: &SignedIn, id: PasskeyId, ip: IpAddr) -> Answer<()> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let user = accounts::locked(&mut tx, who.user.id).await?;
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
) -> Answer<()> {
    let user = who.user.id;
    audit::record(
        tx,
        &Actor::person(user).at(ip),
        None,
        action,
        Target::User(user),
        now,
    )
    .await
}

/// Passkeys of one person: a page can show them, and a sign-in can name them.
const MOST: u64 = 20;
