//! The watch-token rule: what may stand in the query of a stream (EN-5).
//!
//! A query ends up in histories and logs, so what stands there must be short-lived and able to do
//! nothing but watch. The rule is for the query form alone (EN-3a); that the permission to read is
//! held is asked of every caller, elsewhere.

#[cfg(test)]
mod tests;

use types::permission::Permission;

use crate::token::TokenKind;
use crate::verify::Verified;

/// Whether a verified token may open a stream from the query (EN-5a to EN-5d) at `now` (Unix
/// seconds).
pub fn check(token: &Verified, now: i64) -> Result<(), WatchRefusal> {
    if token.kind == TokenKind::Pat {
        return Err(WatchRefusal::Kind);
    }
    let remaining = token
        .limits
        .expires_at()
        .and_then(|at| at.checked_sub(now))
        .ok_or(WatchRefusal::Lifetime)?;
    if !(1..=MAX_REMAINING_SECONDS).contains(&remaining) {
        return Err(WatchRefusal::Lifetime);
    }
    if token.limits.boundary().has_tunnel_resource() {
        return if token.limits.boundary().watch_only_shape() {
            Ok(())
        } else {
            Err(WatchRefusal::Resources)
        };
    }
    let held = token
        .limits
        .permissions()
        .ok_or(WatchRefusal::Permissions)?;
    let reads = held.contains(Permission::TunnelsResourcesReadOnly);
    let changes = [
        Permission::TunnelsTunnelsCreateDelete,
        Permission::TunnelsStreamsCreateDelete,
    ];
    if reads && !changes.into_iter().any(|change| held.contains(change)) {
        Ok(())
    } else {
        Err(WatchRefusal::Permissions)
    }
}

/// Why a token is no watch token. For the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchRefusal {
    /// EN-5a: a personal access token.
    #[error("a personal access token is no watch token")]
    Kind,
    /// EN-5b: no expiry, past it, or too far ahead of it.
    #[error("a watch token has an expiry within an hour and a minute")]
    Lifetime,
    /// EN-5c: the boundary does not allow listing, or allows more.
    #[error("the resources of a watch token allow listing alone")]
    Resources,
    /// EN-5d: no boundary, and permissions that are not narrowed to reading.
    #[error("without resources, the permissions of a watch token allow reading alone")]
    Permissions,
}

/// EN-5b: one hour, and one minute for clocks and slow pages.
const MAX_REMAINING_SECONDS: i64 = 3660;
