//! How long a stream may live: as long as the token that opened it.

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

/// The token of a stream, judged again whenever keys or revocations change.
#[derive(Debug)]
pub(crate) struct CredentialGuard {
    text: Secret,
    expires_at: Option<i64>,
    tokens: Arc<Tokens>,
    /// Where, and by what right, the stream was opened.
    right: RequiredAccess,
    clock: Arc<dyn Clock>,
    changes: watch::Receiver<u64>,
    /// Kept from wait to wait: a stream waits once for each event.
    look_again: Pin<Box<Sleep>>,
}

/// What a stream needs beside a valid token.
#[derive(Debug, Clone)]
pub(super) struct RequiredAccess {
    pub(super) tenancy: Tenancy,
    pub(super) project: Arc<Project>,
    pub(super) permission: Permission,
    /// A further one, of what else the stream shows.
    pub(super) also: Option<Permission>,
}

/// Why a stream may not go on.
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
        right: RequiredAccess,
        clock: Arc<dyn Clock>,
        changes: watch::Receiver<u64>,
    ) -> Self {
        Self {
            text,
            expires_at,
            tokens,
            right,
            clock,
            changes,
            look_again: Box::pin(sleep(Duration::ZERO)),
        }
    }

    /// Ends with this permission, too.
    pub(super) fn require_also(&mut self, permission: Permission) {
        self.right.also = Some(permission);
    }

    /// Waits until the token no longer holds. Cancel-safe.
    pub(crate) async fn ended(&mut self) -> CredentialEnd {
        loop {
            let Some(left) = self.left() else {
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
                    // The clock of the token is the day's, which may be set: it has the last word.
                    let next = Instant::now() + left.min(LONGEST_WAIT);
                    self.look_again.as_mut().reset(next);
                }
            }
        }
    }

    /// How much life is left; `None` where there is none.
    fn left(&self) -> Option<Duration> {
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
        // It came in as text.
        let text = std::str::from_utf8(self.text.expose());
        let token = text
            .ok()
            .and_then(|text| self.tokens.verify(text, now).ok());
        let RequiredAccess {
            tenancy,
            project,
            permission,
            also,
        } = &self.right;
        token.is_some_and(|token| {
            let mut needed = [Some(*permission), *also].into_iter().flatten();
            needed.all(|needed| tenancy.require(&token, project, needed).is_ok())
        })
    }
}

/// Between two looks at the clock: how late a stream may end after the clock was set forward. As much as
/// the clocks of an issuer and an engine may differ by; a look costs a timer.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
