//! Authentication attempts. The first few need no wait, later ones need growing waits. They are
//! counted in the database, so that neither a restart nor a second process resets the count.
//!
//! An attempt counts when it starts, in a transaction of its own, so that parallel attempts all
//! count. Success resets the count. Anyone who knows an address can send wrong passwords for it,
//! so the longest wait for a password is short. A wrong code comes from a client that has the right
//! password. So the waits for codes grow to hours, the owner gets a mail, and the audit log records
//! each one.

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
use super::throttle::{Limits, TooManyAttemptsError};
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::problem::HandlerResult;

/// Subject of an attempt counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttemptKey {
    kind: Kind,
    key: String,
}

impl AttemptKey {
    /// A password for the account of an address. The key is a hash because the text is untrusted
    /// and can have any length.
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

    /// A passkey. It cannot be guessed, so the waits are short.
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

    /// Counts an attempt at its start. Returns the number of attempts, including this one.
    ///
    /// # Errors
    /// The wait after the previous attempts is not over.
    pub(super) async fn record(&self, app: &App, now: Timestamp) -> Result<u32, SignInError> {
        let limits = self.limits();
        let forgotten_after = SignedDuration::from_secs(limits.reset_after.into());
        for _ in 0..MAX_RETRIES {
            let mut tx = app.store.begin().await?;
            let known = stored::find(&mut tx, self.kind, &self.key, now).await?;
            let count = known.as_ref().map_or(0, |known| known.count);
            let tries = u32::try_from(count).unwrap_or(u32::MAX);
            if let Some(known) = known {
                limits.require_wait_over(tries, known.last_at, now)?;
            }
            let forgotten_at = later(now, forgotten_after);
            let attempt_key = (self.kind, self.key.as_str());
            if stored::count(&mut tx, attempt_key, count, now, forgotten_at).await? {
                tx.commit().await?;
                return Ok(tries.saturating_add(1));
            }
        }
        // Concurrent attempts have won every round.
        Err(TooManyAttemptsError(1).into())
    }

    /// Resets the counter, in the transaction of the successful attempt.
    pub(super) async fn reset(&self, tx: &mut Tx) -> HandlerResult<()> {
        stored::forget(tx, self.kind, &self.key).await?;
        Ok(())
    }
}

/// Resets all counters of an account whose owner has authenticated in another way.
pub(super) async fn reset_all(tx: &mut Tx, user: &User) -> HandlerResult<()> {
    let counted = [
        AttemptKey::password(&user.email),
        AttemptKey::code(user.id),
        AttemptKey::passkey(user.id),
    ];
    for one in counted {
        one.reset(tx).await?;
    }
    Ok(())
}

/// Records the `count`th wrong code in a row. After several wrong codes it notifies the owner,
/// because an attacker may have the password.
pub(super) async fn record_wrong_code(
    app: &Arc<App>,
    user: &User,
    count: u32,
    ip: IpAddr,
    now: Timestamp,
) -> HandlerResult<()> {
    let mut tx = app.store.begin().await?;
    let (actor, target) = (Actor::user(user.id).with_ip(ip), AuditTarget::User(user.id));
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
    if notifies_owner(count) {
        notices::send(app, user, &Notice::SecondFactorGuessed, ip, now);
    }
    Ok(())
}

/// True at the last attempt without a wait, and then each time the number has doubled. The user is
/// notified without a mail for each guess.
fn notifies_owner(count: u32) -> bool {
    let first = Limits::CODES.free;
    count.is_multiple_of(first) && (count / first).is_power_of_two()
}

/// Upper bound for retries. Each retry follows a concurrent attempt that was counted.
const MAX_RETRIES: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_notified_after_five_failures_and_then_less_often() {
        let notified: Vec<_> = (1..=100).filter(|count| notifies_owner(*count)).collect();
        assert_eq!(notified, [5, 10, 20, 40, 80]);
    }
}
