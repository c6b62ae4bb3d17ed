//! Waits for updates of the platform that are on their way.
//!
//! The platform confirms a change, for example a new token or member, before its engines have
//! received it. A client that uses the change immediately would be refused for good, so a managed
//! engine waits a moment before it refuses what an update can allow.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::boundary_check::BoundaryDenial;
use super::tenancy::Tenancy;
use super::tokens::{TokenError, Tokens};
use crate::directory::Project;

/// Time for an update to arrive. Engines usually receive it within milliseconds, and within a
/// second if another process of the platform made the change.
pub(crate) const UPDATE_WAIT: Duration = Duration::from_secs(3);
/// Pause between two checks, so that a cluster with frequent changes does not verify a token for
/// each of them.
const CHECK_PAUSE: Duration = Duration::from_millis(100);

/// Returns true if an update of the platform can allow this token in this project: its signature is
/// valid, but the engine does not know its credential, or its user as a member.
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
            matches!(denied, Err(BoundaryDenial::NotMember(_)))
        }
    }
}

/// Waits until the engine has received the update that a token needs, for at most [`UPDATE_WAIT`].
/// Returns immediately if the token needs none. `now` returns Unix seconds.
pub(crate) async fn wait_for_update(
    tokens: &Tokens,
    tenancy: &Tenancy,
    (token, project): (&str, &Project),
    now: impl Fn() -> i64,
) {
    // Subscribed before the check, so that no update is missed.
    let mut changes = tokens.changes();
    let deadline = Instant::now() + UPDATE_WAIT;
    while needs_update(tokens, tenancy, (token, project), now()) {
        let changed = async {
            let is_running = changes.changed().await.is_ok();
            sleep(CHECK_PAUSE).await;
            is_running
        };
        if !matches!(timeout_at(deadline, changed).await, Ok(true)) {
            return;
        }
    }
}
