//! Reauthentication of a signed-in user, before a change of sign-in settings.

use std::net::IpAddr;
use std::sync::Arc;

use store::users::{self, User};
use store::{SecretHash, Tx, sessions};

use super::accounts::check_password;
use super::attempts::{AttemptKey, record_wrong_code};
use super::second_factor::recovery::RecoveryCode;
use super::second_factor::secret_of;
use super::session::SignedIn;
use super::sign_in::SignInError;
use crate::app::App;
use crate::http_api::problem::HandlerResult;

/// Confirms with the password.
pub async fn with_password(app: &App, who: &SignedIn, text: &str) -> Result<(), SignInError> {
    check_password(app, &who.user, text).await?;
    let mut tx = app.store.begin().await?;
    sessions::record_proof(&mut tx, who.session.id, app.now()).await?;
    tx.commit().await?;
    Ok(())
}

/// Confirms with a code of the authenticator app, or a recovery code.
pub async fn with_code(
    app: &Arc<App>,
    who: &SignedIn,
    code: &str,
    ip: IpAddr,
) -> Result<(), SignInError> {
    let now = app.now();
    let counted = AttemptKey::code(who.user.id);
    let count = counted.record(app, now).await?;
    let mut tx = app.store.begin().await?;
    if !use_code(app, &mut tx, &who.user, code).await? {
        drop(tx);
        record_wrong_code(app, &who.user, count, ip, now).await?;
        return Err(SignInError::Wrong);
    }
    counted.reset(&mut tx).await?;
    sessions::record_proof(&mut tx, who.session.id, now).await?;
    tx.commit().await?;
    Ok(())
}

/// Uses a code of the user: one of the authenticator app, if it is active, or a recovery code.
/// False if the code is not valid.
pub async fn use_code(app: &App, tx: &mut Tx, user: &User, code: &str) -> HandlerResult<bool> {
    let now = app.now();
    if let Some(code) = RecoveryCode::read(code) {
        return Ok(users::use_recovery_code(tx, user.id, SecretHash(code.hash()), now).await?);
    }
    if user.totp_confirmed_at.is_none() {
        return Ok(false);
    }
    match secret_of(app, user)?.and_then(|secret| secret.check(code, now)) {
        Some(step) => Ok(users::use_totp_step(tx, user.id, step).await?),
        None => Ok(false),
    }
}
