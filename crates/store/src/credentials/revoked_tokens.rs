//! Tokens that were revoked before their expiry. Minted tokens themselves are not stored.

use jiff::Timestamp;

use crate::database::changes::Change;
use crate::database::connection::{Conn, Tx};
use crate::database::sql::{sql, statements};
use crate::error::Error;

statements! {
    REVOKE = "INSERT INTO revoked_tokens (jti, expires_at, revoked_at) VALUES ($1, $2, $3) ON CONFLICT (jti) DO NOTHING";
    IS_REVOKED = "SELECT COUNT(*) AS n FROM revoked_tokens WHERE jti = $1";
    PURGE = "DELETE FROM revoked_tokens WHERE jti IN \
        (SELECT jti FROM revoked_tokens WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
}

/// Revokes a token. False if it was already revoked.
pub async fn revoke(
    tx: &mut Tx,
    jti: &str,
    expires_at: Timestamp,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::ended(jti), now);
    sql(REVOKE)
        .bind(jti)
        .bind(expires_at)
        .bind(now)
        .changed(tx)
        .await
}

/// True if a token was revoked.
pub async fn is_revoked(conn: &mut Conn, jti: &str) -> Result<bool, Error> {
    Ok(sql(IS_REVOKED).bind(jti).count(conn).await? > 0)
}

/// Deletes at most `limit` tokens that would have expired by now. Returns their number.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(now).bind(limit).execute(tx).await
}
