//! Links sent by mail, to reset a password or to verify an address. Each works once.

use jiff::Timestamp;
use types::id::UserId;

use crate::database::connection::{Conn, Tx};
use crate::database::row::{record, words};
use crate::database::secret::SecretHash;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// A link that was sent.
    pub struct Link from "links" {
        /// The recipient.
        pub user_id: UserId,
        /// Purpose.
        pub kind: Kind,
        /// The address that it was sent to.
        pub email: String,
        /// Creation time.
        pub created_at: Timestamp,
        /// Expiry.
        pub expires_at: Timestamp,
    }
}

words! {
    /// Purpose of a link.
    pub enum Kind {
        /// Sets a new password.
        PasswordReset = "password-reset",
        /// Verifies that the person receives mail at this address.
        Email = "email",
    }
}

statements! {
    INSERT = "INSERT INTO links (hash, user_id, kind, email, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)";
    LIVE = "SELECT user_id, kind, email, created_at, expires_at FROM links \
        WHERE hash = $1 AND kind = $2 AND used_at IS NULL AND expires_at > $3";
    USE = "UPDATE links SET used_at = $3 WHERE hash = $1 AND kind = $2 AND used_at IS NULL AND expires_at > $3 \
        RETURNING user_id, kind, email, created_at, expires_at";
    REVOKE = "UPDATE links SET used_at = $3 WHERE user_id = $1 AND kind = $2 AND used_at IS NULL";
    PENDING = "SELECT user_id, kind, email, created_at, expires_at FROM links \
        WHERE user_id = $1 AND kind = $2 AND used_at IS NULL AND expires_at > $3 \
        ORDER BY created_at DESC LIMIT 1";
    PURGE = "DELETE FROM links WHERE hash IN \
        (SELECT hash FROM links WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
}

/// Records a link that is about to be sent.
pub async fn insert(tx: &mut Tx, hash: SecretHash, link: &Link) -> Result<(), Error> {
    sql(INSERT)
        .bind(hash)
        .bind(link.user_id)
        .bind(link.kind)
        .bind(&link.email)
        .bind(link.created_at)
        .bind(link.expires_at)
        .execute(tx)
        .await?;
    Ok(())
}

/// The link, if it still works. It is not used up.
pub async fn live(
    conn: &mut Conn,
    hash: SecretHash,
    kind: Kind,
    now: Timestamp,
) -> Result<Option<Link>, Error> {
    sql(LIVE).bind(hash).bind(kind).bind(now).one(conn).await
}

/// The newest working link of a kind that was sent to a person.
pub async fn pending(
    conn: &mut Conn,
    user: UserId,
    kind: Kind,
    now: Timestamp,
) -> Result<Option<Link>, Error> {
    sql(PENDING).bind(user).bind(kind).bind(now).one(conn).await
}

/// Uses up the link. `None` if it does not work any more: of two concurrent attempts, one succeeds.
pub async fn consume(
    tx: &mut Tx,
    hash: SecretHash,
    kind: Kind,
    now: Timestamp,
) -> Result<Option<Link>, Error> {
    sql(USE).bind(hash).bind(kind).bind(now).one(tx).await
}

/// Revokes all links of a kind that were sent to a person. Returns their number.
pub async fn revoke(tx: &mut Tx, user: UserId, kind: Kind, now: Timestamp) -> Result<u64, Error> {
    sql(REVOKE)
        .bind(user)
        .bind(kind)
        .bind(now)
        .execute(tx)
        .await
}

/// Deletes at most `limit` expired links. Returns their number.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(now).bind(limit).execute(tx).await
}
