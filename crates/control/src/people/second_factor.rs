//! The second factor of a person: setting it up, putting it in force, taking it away.

use std::net::IpAddr;
use std::sync::Arc;

use store::users::{self, User};
use store::{SealedBytes, SecretHash, Tx, passkeys};
use types::id::UserId;
use types::problem::Problem;

use super::accounts::locked;
use super::notices::{self, Notice};
use super::recovery::{AT_ONCE, RecoveryCode};
use super::session::SignedIn;
use super::totp::TotpSecret;
use crate::app::App;
use crate::audit::{self, Action, Actor, Target};
use crate::keys::Seal;
use crate::problem::Answer;
use crate::random;

/// Draws a secret and keeps it for the person; nothing asks for it until [`confirm`]. A person
/// whose second factor is in force keeps it, and gets a conflict.
pub async fn set_up(app: &App, who: &SignedIn) -> Answer<TotpSecret> {
    let user = &who.user;
    let secret = TotpSecret::new(random::bytes()?);
    let sealed = seal(app)?.seal(user.id.as_str(), secret.expose())?;
    let mut tx = app.store.begin().await?;
    if !users::begin_totp(&mut tx, user.id, &SealedBytes(sealed), app.now()).await? {
        return Err(Problem::conflict().into());
    }
    tx.commit().await?;
    Ok(secret)
}

/// What came of a first code.
#[derive(Clone, Debug)]
pub enum ConfirmationOutcome {
    /// The authenticator app is in force. Where it is the person's first second factor, these are
    /// the recovery codes.
    On(Option<Vec<RecoveryCode>>),
    /// The code is not right, or there is nothing (any more) that it confirms.
    No,
}

/// Puts the second factor in force with a first code, and ends the person's other sessions. The code
/// is compared with the very secret that is put in force, and whether it is the first factor is
/// decided while nobody else changes that.
pub async fn confirm(
    app: &Arc<App>,
    who: &SignedIn,
    code: &str,
    ip: IpAddr,
) -> Answer<ConfirmationOutcome> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let user = locked(&mut tx, who.user.id).await?;
    let step = secret_of(app, &user)?.and_then(|secret| secret.check(code, now, None));
    let (Some(step), Some(secret)) = (step, &user.totp_secret) else {
        return Ok(ConfirmationOutcome::No);
    };
    if !users::confirm_totp(&mut tx, user.id, secret, step, now).await? {
        return Ok(ConfirmationOutcome::No);
    }
    let codes = if passkeys::count(&mut tx, user.id).await? == 0 {
        Some(new_recovery_codes(&mut tx, user.id).await?)
    } else {
        None
    };
    store::sessions::second_factor(&mut tx, who.session.id, now).await?;
    store::sessions::end_all(&mut tx, user.id, Some(who.session.id), now).await?;
    let (actor, target) = (Actor::person(user.id).at(ip), Target::User(user.id));
    audit::record(&mut tx, &actor, None, Action::SecondFactorOn, target, now).await?;
    tx.commit().await?;
    notices::send(app, &user, &Notice::SecondFactorOn, ip, now);
    Ok(ConfirmationOutcome::On(codes))
}

/// Takes the authenticator app away and ends the person's other sessions. With the last second
/// factor go the recovery codes. The caller has made sure of a recent proof.
pub async fn remove(app: &Arc<App>, who: &SignedIn, ip: IpAddr) -> Answer<()> {
    let now = app.now();
    let user = &who.user;
    let mut tx = app.store.begin().await?;
    locked(&mut tx, user.id).await?;
    users::remove_totp(&mut tx, user.id, now).await?;
    if passkeys::count(&mut tx, user.id).await? == 0 {
        users::set_recovery_codes(&mut tx, user.id, &[]).await?;
    }
    store::sessions::end_all(&mut tx, user.id, Some(who.session.id), now).await?;
    let actor = Actor::person(user.id).at(ip);
    audit::record(
        &mut tx,
        &actor,
        None,
        Action::SecondFactorOff,
        Target::User(user.id),
        now,
    )
    .await?;
    tx.commit().await?;
    notices::send(app, user, &Notice::SecondFactorOff, ip, now);
    Ok(())
}

/// Draws recovery codes in place of those that the person had.
pub(super) async fn new_recovery_codes(tx: &mut Tx, user: UserId) -> Answer<Vec<RecoveryCode>> {
    let codes = (0..AT_ONCE)
        .map(|_| Ok(RecoveryCode::new(random::bytes()?)))
        .collect::<Answer<Vec<_>>>()?;
    let hashes: Vec<SecretHash> = codes.iter().map(|code| SecretHash(code.hash())).collect();
    users::set_recovery_codes(tx, user, &hashes).await?;
    Ok(codes)
}

/// The person's secret, in force or not.
///
/// # Errors
/// It cannot be opened: the platform's key was changed. Nobody gets past that without an operator.
pub fn secret_of(app: &App, user: &User) -> Answer<Option<TotpSecret>> {
    let Some(SealedBytes(sealed)) = &user.totp_secret else {
        return Ok(None);
    };
    let secret = seal(app)?
        .open(user.id.as_str(), sealed)
        .and_then(|bytes| TotpSecret::from_kept(bytes.to_vec()));
    if secret.is_none() {
        tracing::error!(user.id = %user.id, "a second factor cannot be opened: was the platform's key changed?");
        return Err(Problem::internal().into());
    }
    Ok(secret)
}

fn seal(app: &App) -> Answer<Seal> {
    Seal::new(&app.keys.derive("second-factor")?)
}
