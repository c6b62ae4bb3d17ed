//! Challenges that were answered: none is answered twice.

use jiff::Timestamp;

use crate::connection::Tx;
use crate::error::Error;
use crate::secret::SecretHash;
use crate::sql::{sql, statements};

statements! {
    SPEND = "INSERT INTO used_challenges (hash, expires_at) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING";
    PURGE = "DELETE FROM used_challenges WHERE hash IN \
        (SELECT hash FROM used_challenges WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
}

/// Uses a challenge up. False when it was before: of two that answer it at once, one does. The
/// caller refuses it by itself from `expires_at` on, so that it need not be known longer.
pub async fn spend(
    tx: &mut Tx,
    challenge: SecretHash,
    expires_at: Timestamp,
) -> Result<bool, Error> {
    sql(SPEND)
        .bind(challenge)
        .bind(expires_at)
        .changed(tx)
        .await
}

/// Forgets challenges that are too old to be answered, at most `limit`. Returns how many.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(now).bind(limit).execute(tx).await
}
