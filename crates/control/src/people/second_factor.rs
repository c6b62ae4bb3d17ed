//! The authenticator app of a user: setup, activation and removal.

pub mod recovery;
pub mod totp;

use std::net::IpAddr;
use std::sync::Arc;

use store::users::{self, User};
use store::{SealedBytes, SecretHash, Tx, passkeys};
use types::id::UserId;
use types::problem::Problem;

use self::recovery::{CODES_PER_SET, RecoveryCode};
use self::totp::TotpSecret;
use super::accounts::lock_user;
use super::notices::{self, Notice};
use super::session::SignedIn;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::problem::HandlerResult;
use crate::keys::Seal;
use crate::runtime::random;

/// Draws a secret and stores it for the user. It is not required at sign-in until [`confirm`]. A
/// user with an active authenticator app keeps its secret and gets a conflict.
pub async fn set_up(app: &App, who: &SignedIn) -> HandlerResult<TotpSecret> {
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

/// Outcome of a first code.
#[derive(Clone, Debug)]
pub enum ConfirmationOutcome {
    /// The authenticator app is active. If it is the user's first second factor, these are the
    /// recovery codes.
    Active(Option<Vec<RecoveryCode>>),
    /// The code is wrong, or there is no pending secret (any more).
    Rejected,
}

/// Activates the authenticator app with a first code, and ends the user's other sessions. The
/// transaction locks the user. So the secret that is activated is the one that the code was
/// compared with, and no concurrent request changes if this is the first second factor.
pub async fn confirm(
    app: &Arc<App>,
    who: &SignedIn,
    code: &str,
    ip: IpAddr,
) -> HandlerResult<ConfirmationOutcome> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let user = lock_user(&mut tx, who.user.id).await?;
    let step = secret_of(app, &user)?.and_then(|secret| secret.check(code, now));
    let (Some(step), Some(secret)) = (step, &user.totp_secret) else {
        return Ok(ConfirmationOutcome::Rejected);
    };
    if !users::confirm_totp(&mut tx, user.id, secret, step, now).await? {
        return Ok(ConfirmationOutcome::Rejected);
    }
    let codes = if passkeys::count(&mut tx, user.id).await? == 0 {
        Some(new_recovery_codes(&mut tx, user.id).await?)
    } else {
        None
    };
    store::sessions::second_factor(&mut tx, who.session.id, now).await?;
    store::sessions::end_all(&mut tx, user.id, Some(who.session.id), now).await?;
    let (actor, target) = (Actor::user(user.id).with_ip(ip), AuditTarget::User(user.id));
    audit::record(&mut tx, &actor, None, Action::SecondFactorOn, target, now).await?;
    tx.commit().await?;
    notices::send(app, &user, &Notice::SecondFactorOn, ip, now);
    Ok(ConfirmationOutcome::Active(codes))
}

/// Removes the authenticator app and ends the user's other sessions. Removing the last second
/// factor deletes the recovery codes. The caller has checked that the user authenticated recently.
pub async fn remove(app: &Arc<App>, who: &SignedIn, ip: IpAddr) -> HandlerResult<()> {
    let now = app.now();
    let user = &who.user;
    let mut tx = app.store.begin().await?;
    lock_user(&mut tx, user.id).await?;
    users::remove_totp(&mut tx, user.id, now).await?;
    if passkeys::count(&mut tx, user.id).await? == 0 {
        users::set_recovery_codes(&mut tx, user.id, &[]).await?;
    }
    store::sessions::end_all(&mut tx, user.id, Some(who.session.id), now).await?;
    let actor = Actor::user(user.id).with_ip(ip);
    audit::record(
        &mut tx,
        &actor,
        None,
        Action::SecondFactorOff,
        AuditTarget::User(user.id),
        now,
    )
    .await?;
    tx.commit().await?;
    notices::send(app, user, &Notice::SecondFactorOff, ip, now);
    Ok(())
}

/// Replaces the recovery codes of the user.
pub(super) async fn new_recovery_codes(
    tx: &mut Tx,
    user: UserId,
) -> HandlerResult<Vec<RecoveryCode>> {
    let codes = (0..CODES_PER_SET)
        .map(|_| Ok(RecoveryCode::new(random::bytes()?)))
        .collect::<HandlerResult<Vec<_>>>()?;
    let hashes: Vec<SecretHash> = codes.iter().map(|code| SecretHash(code.hash())).collect();
    users::set_recovery_codes(tx, user, &hashes).await?;
    Ok(codes)
}

/// The user's secret, active or not.
///
/// # Errors
/// The secret cannot be decrypted because the platform's key was changed. An operator has to fix
/// this.
pub fn secret_of(app: &App, user: &User) -> HandlerResult<Option<TotpSecret>> {
    let Some(SealedBytes(sealed)) = &user.totp_secret else {
        return Ok(None);
    };
    let secret = seal(app)?
        .open(user.id.as_str(), sealed)
        .and_then(|bytes| TotpSecret::from_stored(bytes.to_vec()));
    if secret.is_none() {
        tracing::error!(
            user.id = %user.id,
            "a second factor cannot be decrypted: was the platform's key changed?"
        );
        return Err(Problem::internal().into());
    }
    Ok(secret)
}

fn seal(app: &App) -> HandlerResult<Seal> {
    Seal::new(&app.keys.derive("second-factor")?)
}
