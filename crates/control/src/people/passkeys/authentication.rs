//! Authentication with a passkey: verifies the response and decides what it permits.

use std::net::IpAddr;

use daemon::connections::source_network;
use jiff::Timestamp;
use store::passkeys::{self, Passkey};
use store::users::{self, Status};
use store::{Tx, sessions};
use types::id::{SessionId, UserId};
use webauthn::{Assertion, PasskeyAssertion};

use super::relying_party;
use crate::app::App;
use crate::http_api::problem::HandlerResult;
use crate::people::attempts::{AttemptKey, reset_all};
use crate::people::challenge::{self, Challenge, Purpose};
use crate::people::session::{self, Browser, PendingSignIn, SignedIn, StartedSession};
use crate::people::sign_in::{SignInError, note_sign_in};

/// A browser's response from a passkey.
#[derive(Clone, Debug, Default)]
pub struct PasskeyResponse {
    /// The authenticator's id for the passkey.
    pub credential_id: Vec<u8>,
    /// `response.clientDataJSON`.
    pub client_data: Vec<u8>,
    /// `response.authenticatorData`.
    pub authenticator_data: Vec<u8>,
    /// `response.signature`.
    pub signature: Vec<u8>,
    /// `response.userHandle`: the user id that the authenticator reports; empty if it reports none.
    pub user_handle: Vec<u8>,
}

/// Signs a user in with only a passkey. The passkey identifies the user. `bound_to` identifies the
/// browser that got the challenge.
pub async fn sign_in(
    app: &App,
    response: &PasskeyResponse,
    bound_to: &[u8],
    browser: &Browser,
) -> Result<StartedSession, SignInError> {
    let now = app.now();
    let from = source_network(browser.ip);
    app.people.ip_throttle.record_attempt(&from, now)?;
    let known =
        passkeys::by_credential(&mut *app.store.read().await?, &response.credential_id).await?;
    let known = known.ok_or(SignInError::Wrong)?;
    AttemptKey::passkey(known.user_id).record(app, now).await?;
    let (shown, challenge) = verify(app, &known, response, Purpose::SignIn, bound_to)?;
    // The passkey must report its user (level 3, section 7.2, step 6). Only one that verified its
    // owner before is enough to sign in alone.
    let is_whole = shown.user_verified && known.user_verified;
    if !is_whole || response.user_handle != known.user_id.to_string().as_bytes() {
        return Err(SignInError::Wrong);
    }
    let mut tx = app.store.begin().await?;
    if !consume(&mut tx, &known, shown, &challenge, now).await? {
        return Err(SignInError::Wrong);
    }
    let user = users::by_id(&mut tx, known.user_id).await?;
    let Some(user) = user.filter(|user| user.status == Status::Active) else {
        return Err(SignInError::Wrong);
    };
    let started = session::start_full(app, &mut tx, &user, browser, now).await?;
    note_sign_in(&mut tx, &user, browser.ip, now).await?;
    reset_all(&mut tx, &user).await?;
    tx.commit().await?;
    app.people.ip_throttle.undo_attempt(&from);
    Ok(started)
}

/// Completes a sign-in with a passkey. Returns the value of `Set-Cookie`.
pub async fn second_factor(
    app: &App,
    who: &PendingSignIn,
    response: &PasskeyResponse,
    ip: IpAddr,
) -> Result<String, SignInError> {
    let now = app.now();
    let mut tx = verify_for_user(
        app,
        (who.user.id, who.id),
        response,
        Purpose::SecondFactor,
        now,
    )
    .await?;
    let Some(cookie) = session::complete(app, &mut tx, who, now).await? else {
        return Err(SignInError::Wrong);
    };
    note_sign_in(&mut tx, &who.user, ip, now).await?;
    tx.commit().await?;
    Ok(cookie)
}

/// Confirms the identity of the signed-in user with a passkey.
pub async fn confirm(
    app: &App,
    who: &SignedIn,
    response: &PasskeyResponse,
) -> Result<(), SignInError> {
    let now = app.now();
    let whose = (who.user.id, who.session.id);
    let mut tx = verify_for_user(app, whose, response, Purpose::Confirm, now).await?;
    sessions::record_proof(&mut tx, who.session.id, now).await?;
    tx.commit().await?;
    Ok(())
}

/// Counts and verifies a passkey response of a known user, and uses the challenge.
async fn verify_for_user(
    app: &App,
    (user, session): (UserId, SessionId),
    response: &PasskeyResponse,
    purpose: Purpose,
    now: Timestamp,
) -> Result<Tx, SignInError> {
    let counted = AttemptKey::passkey(user);
    counted.record(app, now).await?;
    let known =
        passkeys::by_credential(&mut *app.store.read().await?, &response.credential_id).await?;
    let known = known.filter(|known| known.user_id == user);
    let known = known.ok_or(SignInError::Wrong)?;
    let bound_to = session.to_string();
    let (shown, challenge) = verify(app, &known, response, purpose, bound_to.as_bytes())?;
    let mut tx = app.store.begin().await?;
    if consume(&mut tx, &known, shown, &challenge, now).await? {
        counted.reset(&mut tx).await?;
        Ok(tx)
    } else {
        Err(SignInError::Wrong)
    }
}

fn verify(
    app: &App,
    known: &Passkey,
    response: &PasskeyResponse,
    purpose: Purpose,
    bound_to: &[u8],
) -> Result<(PasskeyAssertion, Challenge), SignInError> {
    let mut challenge = None;
    let assertion = Assertion {
        client_data: &response.client_data,
        authenticator_data: &response.authenticator_data,
        signature: &response.signature,
    };
    let shown = relying_party(app)?.verify(&known.public_key, assertion, |bytes| {
        let found = challenge::verify(app, purpose, bound_to, bytes);
        challenge = found.ok().flatten();
        challenge.is_some()
    });
    match (shown, challenge) {
        (Ok(shown), Some(challenge)) => Ok((shown, challenge)),
        (Err(error), _) => {
            tracing::debug!(user.id = %known.user_id, %error, "a passkey was refused");
            Err(SignInError::Wrong)
        }
        (Ok(_), None) => Err(SignInError::Wrong),
    }
}

/// Uses the challenge and records the use of the passkey. False if either was used before. A
/// counter that does not grow indicates a copy of the authenticator.
async fn consume(
    tx: &mut Tx,
    known: &Passkey,
    assertion: PasskeyAssertion,
    challenge: &Challenge,
    now: Timestamp,
) -> HandlerResult<bool> {
    if !challenge::spend(tx, challenge).await? {
        return Ok(false);
    }
    let count = assertion.sign_count.into();
    let is_next = passkeys::record_use(tx, known.id, count, assertion.user_verified, now).await?;
    if !is_next {
        tracing::warn!(
            user.id = %known.user_id, passkey.id = %known.id,
            "the counter of a passkey did not increase: a copy of it may exist"
        );
    }
    Ok(is_next)
}
