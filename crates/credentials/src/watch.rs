//! The watch-token rule: what may stand in the query of a stream (EN-5).

use crate::verify::Verified;

/// Whether a verified token may open a stream from the query (EN-5a to EN-5d) at `now` (Unix
/// seconds).
pub fn check(token: &Verified, now: i64) -> Result<(), WatchRefusal> {
    let _ = (token, now);
    Err(WatchRefusal::Kind)
}

/// Why a token is no watch token. For the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchRefusal {
    /// EN-5a: a personal access token.
    #[error("a personal access token is no watch token")]
    Kind,
}
