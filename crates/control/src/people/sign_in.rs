//! Sign-in with email and password, and with the second factor.

use std::net::IpAddr;
use std::sync::Arc;

use daemon::connections::source_network;
use store::users::{self, Status, User};
use store::{PasswordHash, Tx};
use types::problem::Problem;

use super::attempts::{AttemptKey, record_wrong_code};
use super::confirm::use_code;
use super::email::Email;
use super::password::{HashError, Password, Verdict};
use super::session::{self, Browser, PendingSignIn, StartedSession};
use super::throttle::TooManyAttemptsError;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::runtime::metrics;
use crate::runtime::metrics::SignIn;

/// Reasons that a sign-in failed.
#[derive(Debug)]
pub enum SignInError {
    /// Wrong, without details: no such user, suspended, another password or code.
    Wrong,
    /// Too many attempts. The value is the number of seconds until the next one.
    TooSoon(u32),
    /// Internal failure.
    Failed(Refusal),
}

impl SignInError {
    fn outcome(&self) -> SignIn {
        match self {
            Self::Wrong => SignIn::Wrong,
            Self::TooSoon(_) => SignIn::TooSoon,
            Self::Failed(_) => SignIn::Failed,
        }
    }
}

impl From<TooManyAttemptsError> for SignInError {
    fn from(TooManyAttemptsError(seconds): TooManyAttemptsError) -> Self {
        Self::TooSoon(seconds)
    }
}

impl<R: Into<Refusal>> From<R> for SignInError {
    fn from(error: R) -> Self {
        Self::Failed(error.into())
    }
}

/// Converts a failure of password hashing into the caller's response.
impl From<HashError> for Refusal {
    fn from(error: HashError) -> Self {
        match error {
            HashError::Busy => Problem::unavailable().with_retry_after(1).into(),
            HashError::Failed(message) => {
                tracing::error!(error = %message, "a password could not be hashed or compared");
                Problem::internal().into()
            }
        }
    }
}

/// Signs a user in by password. The response takes as long for an unknown address.
pub async fn with_password(
    app: &App,
    email: &str,
    password: &str,
    browser: &Browser,
) -> Result<StartedSession, SignInError> {
    let started = by_password(app, email, password, browser).await;
    metrics::signed_in(match &started {
        Ok(started) if started.is_second_factor_pending => SignIn::SecondFactorPending,
        Ok(_) => SignIn::Ok,
        Err(error) => error.outcome(),
    });
    started
}

async fn by_password(
    app: &App,
    email: &str,
    password: &str,
    browser: &Browser,
) -> Result<StartedSession, SignInError> {
    let now = app.now();
    let from = source_network(browser.ip);
    app.people.ip_throttle.record_attempt(&from, now)?;
    let counted = AttemptKey::password(email);
    counted.record(app, now).await?;
    let user = match Email::parse(email) {
        Ok(email) => users::by_email(&mut *app.store.read().await?, email.as_str()).await?,
        Err(_) => None,
    };
    let Ok(password) = Password::typed(password) else {
        return Err(SignInError::Wrong);
    };
    let stored_hash = user.as_ref().and_then(|user| user.password_hash.clone());
    let passwords = &app.people.passwords;
    let verdict = passwords
        .verify(password.clone(), stored_hash.map(|PasswordHash(text)| text))
        .await?;
    let Some(user) = user.filter(|user| user.status == Status::Active) else {
        return Err(SignInError::Wrong);
    };
    let renewed = match verdict {
        Verdict::Mismatch => return Err(SignInError::Wrong),
        Verdict::Match => None,
        Verdict::MatchNeedsRehash => Some(PasswordHash(passwords.hash(password).await?)),
    };
    app.people.ip_throttle.undo_attempt(&from);
    let mut tx = app.store.begin().await?;
    let user = unchanged(&mut tx, user).await?;
    counted.reset(&mut tx).await?;
    if let Some(hash) = renewed {
        users::set_password(&mut tx, user.id, Some(&hash), now).await?;
    }
    let started = session::start(app, &mut tx, &user, browser, now).await?;
    if !started.is_second_factor_pending {
        note_sign_in(&mut tx, &user, browser.ip, now).await?;
    }
    tx.commit().await?;
    Ok(started)
}

/// Reads the user again, and checks that the password is still the one that was compared. A
/// concurrent password change or suspension has ended every session, and must not be followed by a
/// new one.
async fn unchanged(tx: &mut Tx, before: User) -> Result<User, SignInError> {
    users::lock(tx, before.id).await?;
    let user = users::by_id(tx, before.id).await?;
    let same =
        |user: &User| user.status == Status::Active && user.password_hash == before.password_hash;
    user.filter(same).ok_or(SignInError::Wrong)
}

/// Completes a sign-in with a code of the authenticator app, or with a recovery code. Returns the
/// value of `Set-Cookie`.
pub async fn with_second_factor(
    app: &Arc<App>,
    who: &PendingSignIn,
    code: &str,
    ip: IpAddr,
) -> Result<String, SignInError> {
    let cookie = by_second_factor(app, who, code, ip).await;
    metrics::signed_in(match &cookie {
        Ok(_) => SignIn::Ok,
        Err(error) => error.outcome(),
    });
    cookie
}

async fn by_second_factor(
    app: &Arc<App>,
    who: &PendingSignIn,
    code: &str,
    ip: IpAddr,
) -> Result<String, SignInError> {
    let now = app.now();
    let user = &who.user;
    let counted = AttemptKey::code(user.id);
    let count = counted.record(app, now).await?;
    let mut tx = app.store.begin().await?;
    if !use_code(app, &mut tx, user, code).await? {
        drop(tx);
        record_wrong_code(app, user, count, ip, now).await?;
        return Err(SignInError::Wrong);
    }
    counted.reset(&mut tx).await?;
    let Some(cookie) = session::complete(app, &mut tx, who, now).await? else {
        return Err(SignInError::Wrong);
    };
    note_sign_in(&mut tx, user, ip, now).await?;
    tx.commit().await?;
    Ok(cookie)
}

/// Writes a sign-in to the audit log.
pub(super) async fn note_sign_in(
    tx: &mut store::Tx,
    user: &User,
    ip: IpAddr,
    now: jiff::Timestamp,
) -> HandlerResult<()> {
    let actor = Actor::user(user.id).with_ip(ip);
    audit::record(
        tx,
        &actor,
        None,
        Action::SignedIn,
        AuditTarget::User(user.id),
        now,
    )
    .await
}
