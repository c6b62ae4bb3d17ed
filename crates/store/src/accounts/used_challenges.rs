//! Challenges that were solved: none is accepted twice.

use jiff::Timestamp;

use crate::database::connection::Tx;
use crate::database::secret::SecretHash;
use crate::database::sql::{sql, statements};
use crate::error::Error;

statements! {
    SPEND = "INSERT INTO used_challenges (hash, expires_at) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING";
    PURGE = "DELETE FROM used_challenges WHERE hash IN \
        (SELECT hash FROM used_challenges WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
}

/// Uses up a challenge. False if it was already used: of two concurrent uses, one succeeds. The
/// caller refuses it anyway from `expires_at` on, so it can be deleted then.
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

/// Deletes at most `limit` expired challenges. Returns their number.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(now).bind(limit).execute(tx).await
}
