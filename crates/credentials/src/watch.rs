//! The watch-token rule: tokens that are allowed in the query of a stream (EN-5).
//!
//! A query may end up in histories and logs, so a token in it must be short-lived and only allow
//! watching. The rule applies only to the query form (EN-3a). The permission to read is checked
//! elsewhere, for every caller.

#[cfg(test)]
mod tests;

use types::permission::Permission;

use crate::token::TokenKind;
use crate::verify::VerifiedToken;

/// Checks that a verified token may open a stream from the query (EN-5a to EN-5d) at `now` (Unix
/// seconds).
pub fn check(token: &VerifiedToken, now: i64) -> Result<(), WatchRefusal> {
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
    let permissions = token
        .limits
        .permissions()
        .ok_or(WatchRefusal::Permissions)?;
    let reads = permissions.contains(Permission::TunnelsResourcesReadOnly);
    let changes = [
        Permission::TunnelsTunnelsCreateDelete,
        Permission::TunnelsStreamsCreateDelete,
    ];
    if reads
        && !changes
            .into_iter()
            .any(|change| permissions.contains(change))
    {
        Ok(())
    } else {
        Err(WatchRefusal::Permissions)
    }
}

/// Reason why a token is not a watch token. For the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchRefusal {
    /// EN-5a: a personal access token.
    #[error("a personal access token cannot be used as a watch token")]
    Kind,
    /// EN-5b: no expiry, expired, or an expiry too far ahead.
    #[error("a watch token must expire within an hour and a minute")]
    Lifetime,
    /// EN-5c: the boundary does not allow listing, or allows more.
    #[error("the resources of a watch token may only allow listing")]
    Resources,
    /// EN-5d: no boundary, and permissions that are not restricted to reading.
    #[error("without resources, the permissions of a watch token may only allow reading")]
    Permissions,
}

/// EN-5b: one hour, and one minute for clock differences and slow pages.
const MAX_REMAINING_SECONDS: i64 = 3660;
