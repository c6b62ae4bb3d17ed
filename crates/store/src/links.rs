//! Links sent by mail: to reset a password, to prove an address. Each works once.

use jiff::Timestamp;
use types::id::UserId;

use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::row::{record, words};
use crate::secret::SecretHash;
use crate::sql::{sql, statements};

record! {
    /// A link that was sent.
    pub struct Link from "links" {
        /// To whom.
        pub user_id: UserId,
        /// What for.
        pub kind: Kind,
        /// The address that it was sent to.
        pub email: String,
        /// When it was made.
        pub created_at: Timestamp,
        /// Until when it works.
        pub expires_at: Timestamp,
    }
}

words! {
    /// What a link does.
    pub enum Kind {
        /// Sets a new password.
        PasswordReset = "password-reset",
        /// Proves that the person reads this address.
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

/// Notes a link that is about to be sent.
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

/// The link, if it still works; it is not used up.
pub async fn live(
    conn: &mut Conn,
    hash: SecretHash,
    kind: Kind,
    now: Timestamp,
) -> Result<Option<Link>, Error> {
    sql(LIVE).bind(hash).bind(kind).bind(now).one(conn).await
}

/// The newest link of a kind that a person was sent and that still works.
pub async fn pending(
    conn: &mut Conn,
    user: UserId,
    kind: Kind,
    now: Timestamp,
) -> Result<Option<Link>, Error> {
    sql(PENDING).bind(user).bind(kind).bind(now).one(conn).await
}

/// Uses the link up. `None` when it does not work (any more): of two that try, one gets it.
pub async fn consume(
    tx: &mut Tx,
    hash: SecretHash,
    kind: Kind,
    now: Timestamp,
) -> Result<Option<Link>, Error> {
    sql(USE).bind(hash).bind(kind).bind(now).one(tx).await
}

/// Ends all links of a kind that a person was sent. Returns how many.
pub async fn revoke(tx: &mut Tx, user: UserId, kind: Kind, now: Timestamp) -> Result<u64, Error> {
    sql(REVOKE)
        .bind(user)
        .bind(kind)
        .bind(now)
        .execute(tx)
        .await
}

/// Forgets at most `limit` links that are too old to work. Returns how many.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(now).bind(limit).execute(tx).await
}
