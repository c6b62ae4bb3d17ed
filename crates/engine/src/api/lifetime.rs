//! The lifetime of a stream: it ends when the token that opened it is no longer valid.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use credentials::Secret;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};

use types::permission::Permission;

use crate::access::{Tenancy, Tokens};
use crate::clock::Clock;
use crate::directory::Project;

/// The token of a stream, checked again whenever keys or revocations change.
#[derive(Debug)]
pub(crate) struct CredentialGuard {
    text: Secret,
    expires_at: Option<i64>,
    tokens: Arc<Tokens>,
    /// The project and the permissions with which the stream was opened.
    required: RequiredAccess,
    clock: Arc<dyn Clock>,
    changes: watch::Receiver<u64>,
    /// Kept between waits: a stream waits once for each event.
    look_again: Pin<Box<Sleep>>,
}

/// The access that a stream requires in addition to a valid token.
#[derive(Debug, Clone)]
pub(super) struct RequiredAccess {
    pub(super) tenancy: Tenancy,
    pub(super) project: Arc<Project>,
    pub(super) permission: Permission,
    /// A further permission, for additional content of the stream.
    pub(super) additional_permission: Option<Permission>,
}

/// Reasons why a stream may not continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CredentialEnd {
    #[error("the token has expired")]
    Expired,
    #[error("the token is no longer valid")]
    Revoked,
}

impl CredentialGuard {
    pub(super) fn new(
        text: Secret,
        expires_at: Option<i64>,
        tokens: Arc<Tokens>,
        required: RequiredAccess,
        clock: Arc<dyn Clock>,
        changes: watch::Receiver<u64>,
    ) -> Self {
        Self {
            text,
            expires_at,
            tokens,
            required,
            clock,
            changes,
            look_again: Box::pin(sleep(Duration::ZERO)),
        }
    }

    /// Ends the stream also when this permission is lost.
    pub(super) fn require_also(&mut self, permission: Permission) {
        self.required.additional_permission = Some(permission);
    }

    /// Waits until the token is no longer valid. Cancel-safe.
    pub(crate) async fn ended(&mut self) -> CredentialEnd {
        loop {
            let Some(left) = self.remaining() else {
                return CredentialEnd::Expired;
            };
            tokio::select! {
                biased;
                changed = self.changes.changed() => {
                    // Without a sender the engine itself is gone, and so are its streams.
                    if changed.is_err() || !self.is_still_valid() {
                        return CredentialEnd::Revoked;
                    }
                }
                () = &mut self.look_again => {
                    // The token's expiry is in wall-clock time, which may be set, so it is checked
                    // again.
                    let next = Instant::now() + left.min(LONGEST_WAIT);
                    self.look_again.as_mut().reset(next);
                }
            }
        }
    }

    /// Remaining lifetime; `None` if it has expired.
    fn remaining(&self) -> Option<Duration> {
        let Some(expires_at) = self.expires_at else {
            return Some(LONGEST_WAIT);
        };
        let millis = i128::from(expires_at) * 1000 - i128::from(self.clock.now().as_millisecond());
        u64::try_from(millis)
            .ok()
            .filter(|left| *left > 0)
            .map(Duration::from_millis)
    }

    fn is_still_valid(&self) -> bool {
        let now = self.clock.now().as_second();
        // The token was received as text, so this cannot fail.
        let text = std::str::from_utf8(self.text.expose());
        let token = text
            .ok()
            .and_then(|text| self.tokens.verify(text, now).ok());
        let RequiredAccess {
            tenancy,
            project,
            permission,
            additional_permission: also,
        } = &self.required;
        token.is_some_and(|token| {
            let mut needed = [Some(*permission), *also].into_iter().flatten();
            needed.all(|needed| tenancy.require(&token, project, needed).is_ok())
        })
    }
}

/// Interval between two checks of the clock, which is the delay of a stream's end after the clock
/// was set forward. It equals the allowed difference between the clocks of issuer and engine; a
/// check costs a timer.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
