//! Attempts to prove who one is: a few at once, then with growing waits, counted in the database, so
//! that neither a restart nor a second process forgives.
//!
//! An attempt counts when it begins, in a transaction of its own, so that many at the same time are
//! not one. Success takes it back. Whoever knows an address can fail on purpose with its password:
//! so the longest wait for a password is short. A wrong code comes from somebody who knows the
//! password: so the waits for codes grow to hours, the owner is mailed, and the audit log has each
//! one.

use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::digest;
use jiff::{SignedDuration, Timestamp};
use store::Tx;
use store::attempts::{self as stored, Kind};
use store::users::User;
use types::id::UserId;

use super::notices::{self, Notice};
use super::session::later;
use super::sign_in::SignInError;
use super::throttle::{Limits, TooSoon};
use crate::app::App;
use crate::audit::{self, Action, Actor, Target};
use crate::problem::Answer;

/// What attempts are counted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttemptKey {
    kind: Kind,
    key: String,
}

impl AttemptKey {
    /// A password for the account of an address. A hash, because the text is whatever a stranger
    /// typed, of any length.
    pub(super) fn password(email: &str) -> Self {
        let digest = digest::digest(&digest::SHA256, email.trim().to_lowercase().as_bytes());
        Self {
            kind: Kind::Password,
            key: hex::encode(digest),
        }
    }

    /// A code of the authenticator app, or a recovery code.
    pub(super) fn code(user: UserId) -> Self {
        Self {
            kind: Kind::Code,
            key: user.to_string(),
        }
    }

    /// A passkey. It cannot be guessed, so that nobody waits for long.
    pub(super) fn passkey(user: UserId) -> Self {
        Self {
            kind: Kind::Passkey,
            key: user.to_string(),
        }
    }

    fn limits(&self) -> Limits {
        match self.kind {
            Kind::Password | Kind::Passkey => Limits::ACCOUNT,
            Kind::Code => Limits::CODES,
        }
    }

    /// Counts an attempt that begins, and returns how many there are with it.
    ///
    /// # Errors
    /// The wait after those before is not over.
    pub(super) async fn begin(&self, app: &App, now: Timestamp) -> Result<u32, SignInError> {
        let limits = self.limits();
        let forgotten_after = SignedDuration::from_secs(limits.forgotten_after.into());
        for _ in 0..MAX_LOOKS {
            let mut tx = app.store.begin().await?;
            let known = stored::find(&mut tx, self.kind, &self.key, now).await?;
            let count = known.as_ref().map_or(0, |known| known.count);
            let tries = u32::try_from(count).unwrap_or(u32::MAX);
            if let Some(known) = known {
                limits.require_wait(tries, known.last_at, now)?;
            }
            let forgotten_at = later(now, forgotten_after);
            let what = (self.kind, self.key.as_str());
            if stored::count(&mut tx, what, count, now, forgotten_at).await? {
                tx.commit().await?;
                return Ok(tries.saturating_add(1));
            }
        }
        // Others count all the time.
        Err(TooSoon(1).into())
    }

    /// Forgets the attempts, in the transaction of the one that was good.
    pub(super) async fn forgive(&self, tx: &mut Tx) -> Answer<()> {
        stored::forget(tx, self.kind, &self.key).await?;
        Ok(())
    }
}

/// Forgets what was counted for an account whose owner was proved in another way.
pub(super) async fn forgive_all(tx: &mut Tx, user: &User) -> Answer<()> {
    let counted = [
        AttemptKey::password(&user.email),
        AttemptKey::code(user.id),
        AttemptKey::passkey(user.id),
    ];
    for one in counted {
        one.forgive(tx).await?;
    }
    Ok(())
}

/// Writes down that a code was wrong, the `count`th in a row, and tells the owner once there are
/// several: somebody knows the password.
pub(super) async fn wrong_code(
    app: &Arc<App>,
    user: &User,
    count: u32,
    ip: IpAddr,
    now: Timestamp,
) -> Answer<()> {
    let mut tx = app.store.begin().await?;
    let (actor, target) = (Actor::person(user.id).at(ip), Target::User(user.id));
    audit::record(
        &mut tx,
        &actor,
        None,
        Action::SecondFactorFailed,
        target,
        now,
    )
    .await?;
    tx.commit().await?;
    if is_told(count) {
        notices::send(app, user, &Notice::SecondFactorGuessed, ip, now);
    }
    Ok(())
}

/// At the last attempt without a wait, and then each time the number has doubled: a person learns
/// of it, and gets no mail for each guess.
fn is_told(count: u32) -> bool {
    let first = Limits::CODES.free;
    count.is_multiple_of(first) && (count / first).is_power_of_two()
}

/// Each look after the first follows an attempt that another one counted.
const MAX_LOOKS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_told_at_once_and_then_less_and_less() {
        let told: Vec<_> = (1..=100).filter(|count| is_told(*count)).collect();
        assert_eq!(told, [5, 10, 20, 40, 80]);
    }
}
