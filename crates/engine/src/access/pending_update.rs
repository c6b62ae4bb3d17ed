//! Waits for updates of the platform that are on their way.
//!
//! The platform confirms a change, for example a new token or member, before its engines have
//! received it. A client that uses the change immediately would be refused for good, so a managed
//! engine waits a moment before it refuses what an update can allow.

use std::collections::HashMap;
use std::time::Duration;

use credentials::digest;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use super::boundary_check::BoundaryDenial;
use super::digest::Digest;
use super::tenancy::Tenancy;
use super::tokens::{TokenError, Tokens};
use crate::directory::Project;

/// Pause between two checks, so that a cluster with frequent changes does not verify a token, or
/// check a tunnel, for each of them.
pub(crate) const CHECK_PAUSE: Duration = Duration::from_millis(100);
/// Period in which a token waits only once, so that later refusals are immediate.
const WAIT_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum number of tokens whose waits are remembered. Beyond it, refusals are immediate.
const MAX_WAITS: usize = 1024;

/// The waits of tokens.
#[derive(Debug)]
pub(super) struct UpdateWaits {
    /// Time for an update to arrive.
    limit: Duration,
    /// Starts of the waits of the last [`WAIT_INTERVAL`], by token.
    starts: Mutex<HashMap<Digest, Instant>>,
}

impl UpdateWaits {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            starts: Mutex::default(),
        }
    }

    /// The end of the wait of a token, which its concurrent requests share. It is in the past for a
    /// token that waited before. `None` if too many tokens wait.
    fn deadline(&self, digest: Digest, now: Instant) -> Option<Instant> {
        let mut starts = self.starts.lock();
        if starts.len() >= MAX_WAITS {
            starts.retain(|_, start| now < *start + WAIT_INTERVAL);
        }
        let is_full = starts.len() >= MAX_WAITS;
        let start = match starts.get_mut(&digest) {
            Some(start) if now < *start + WAIT_INTERVAL => *start,
            Some(start) => {
                *start = now;
                now
            }
            None if is_full => return None,
            None => {
                starts.insert(digest, now);
                now
            }
        };
        Some(start + self.limit)
    }
}

/// Returns true if an update of the platform can allow this token in this project: the engine does
/// not know its credential, its user as a member, or that the project was resumed. The signature of
/// an unknown application's token cannot be checked, because the credential has the keys.
fn needs_update(
    tokens: &Tokens,
    tenancy: &Tenancy,
    (token, project): (&str, &Project),
    now: i64,
) -> bool {
    match tokens.verify(token, now) {
        Err(TokenError::UnknownCredential(_)) => true,
        Err(TokenError::Refused(_) | TokenError::Revoked | TokenError::NoCredential(_)) => false,
        Ok(token) => {
            let denied = tenancy.check_access(&token, project);
            matches!(
                denied,
                Err(BoundaryDenial::NotMember(_) | BoundaryDenial::Suspended)
            )
        }
    }
}

/// Waits until the engine has received the update that a token needs, for a limited time. Returns
/// immediately if the token needs none, or has waited in the last [`WAIT_INTERVAL`]. `now` returns
/// Unix seconds.
pub(crate) async fn wait_for_update(
    tokens: &Tokens,
    tenancy: &Tenancy,
    (token, project): (&str, &Project),
    now: impl Fn() -> i64,
) {
    // Subscribed before the check, so that no update is missed.
    let mut changes = tokens.changes();
    let mut deadline = None;
    while needs_update(tokens, tenancy, (token, project), now()) {
        let end = deadline.or_else(|| tokens.waits().deadline(digest(token), Instant::now()));
        let Some(end) = end else { return };
        deadline = Some(end);
        let changed = async {
            let is_running = changes.changed().await.is_ok();
            sleep(CHECK_PAUSE).await;
            is_running
        };
        if !matches!(timeout_at(end, changed).await, Ok(true)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_waits_once_in_an_interval_and_few_tokens_wait() {
        const LIMIT: Duration = Duration::from_secs(3);
        let waits = UpdateWaits::new(LIMIT);
        let start = Instant::now();
        let end = start + LIMIT;
        assert_eq!(waits.deadline([0; 32], start), Some(end));
        // A request during the wait, and one after it.
        for later in [CHECK_PAUSE, 2 * LIMIT] {
            assert_eq!(waits.deadline([0; 32], start + later), Some(end));
        }
        let next = start + WAIT_INTERVAL;
        assert_eq!(waits.deadline([0; 32], next), Some(next + LIMIT));

        for number in 1..MAX_WAITS {
            let mut other = [1; 32];
            other[..8].copy_from_slice(&number.to_le_bytes());
            assert!(waits.deadline(other, next).is_some());
        }
        assert_eq!(waits.deadline([2; 32], next), None);
        let last = next + WAIT_INTERVAL;
        assert_eq!(waits.deadline([2; 32], last), Some(last + LIMIT));
    }
}
