//! Pending sign-ins at an OpenID provider. Each is used once.

use jiff::Timestamp;

use crate::database::connection::Tx;
use crate::database::row::record;
use crate::database::secret::{SealedBytes, SecretHash};
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// A sign-in that a browser started.
    pub struct PendingSignIn from "pending_sign_ins" {
        /// Hash of the secret in the browser's cookie.
        pub hash: SecretHash,
        /// State for the browser's return.
        pub sealed: SealedBytes,
        /// Start time.
        pub created_at: Timestamp,
        /// Expiry.
        pub expires_at: Timestamp,
    }
}

statements! {
    INSERT = "INSERT INTO pending_sign_ins (hash, sealed, created_at, expires_at) VALUES ($1, $2, $3, $4)";
    CONSUME = "DELETE FROM pending_sign_ins WHERE hash = $1 AND expires_at > $2 \
        RETURNING hash, sealed, created_at, expires_at";
    PURGE = "DELETE FROM pending_sign_ins WHERE hash IN \
        (SELECT hash FROM pending_sign_ins WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
    // Keeps the newest ones.
    TRIM = "DELETE FROM pending_sign_ins WHERE hash IN \
        (SELECT hash FROM pending_sign_ins ORDER BY created_at DESC, hash LIMIT $2 OFFSET $1)";
}

/// Records that a browser is being redirected to the provider.
pub async fn insert(tx: &mut Tx, pending: &PendingSignIn) -> Result<(), Error> {
    sql(INSERT)
        .bind(pending.hash)
        .bind(&pending.sealed)
        .bind(pending.created_at)
        .bind(pending.expires_at)
        .execute(tx)
        .await?;
    Ok(())
}

/// Consumes it. `None` if it never existed, was used, or has expired: of two concurrent attempts,
/// one succeeds.
pub async fn consume(
    tx: &mut Tx,
    hash: SecretHash,
    now: Timestamp,
) -> Result<Option<PendingSignIn>, Error> {
    sql(CONSUME).bind(hash).bind(now).one(tx).await
}

/// Deletes at most `limit` expired sign-ins. Returns their number.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(now).bind(limit).execute(tx).await
}

/// Deletes the oldest ones beyond `most`, at most `limit` of them. Returns their number.
pub async fn trim(tx: &mut Tx, most: u32, limit: u32) -> Result<u64, Error> {
    sql(TRIM).bind(most).bind(limit).execute(tx).await
}
