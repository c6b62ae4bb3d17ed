//! Authorization requests as a consent page showed them: each is decided once.

use jiff::Timestamp;
use types::id::{SessionId, UserId};

use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::row::record;
use crate::secret::SecretHash;
use crate::sql::{sql, statements};

record! {
    /// A request that waits for a decision.
    pub struct ShownRequest from "oauth_requests" {
        /// Hash of the secret that the page sends along.
        pub hash: SecretHash,
        /// Who saw the page.
        pub user_id: UserId,
        /// In which session.
        pub session_id: SessionId,
        /// The request in its one spelling.
        pub query: String,
        /// Until when it can be decided.
        pub expires_at: Timestamp,
    }
}

macro_rules! columns {
    () => {
        "hash, user_id, session_id, query, expires_at"
    };
}

statements! {
    INSERT = concat!("INSERT INTO oauth_requests (", columns!(), ") VALUES ($1, $2, $3, $4, $5)");
    // Pages that somebody opened and left: the newest few can be decided.
    TRIM = "DELETE FROM oauth_requests WHERE user_id = $1 AND hash NOT IN (SELECT hash FROM oauth_requests \
        WHERE user_id = $1 ORDER BY expires_at DESC, hash LIMIT $2)";
    FIND = concat!("SELECT ", columns!(), " FROM oauth_requests WHERE hash = $1 AND expires_at > $2");
    // Of two that decide, one does.
    DECIDE = "DELETE FROM oauth_requests WHERE hash = $1 AND session_id = $2 AND expires_at > $3";
    PURGE = "DELETE FROM oauth_requests WHERE hash IN \
        (SELECT hash FROM oauth_requests WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
}

/// Keeps a request that is about to be shown, and of the person's others the newest, `most` in all.
pub async fn insert(tx: &mut Tx, request: &ShownRequest, most: u32) -> Result<(), Error> {
    sql(INSERT)
        .bind(request.hash)
        .bind(request.user_id)
        .bind(request.session_id)
        .bind(&request.query)
        .bind(request.expires_at)
        .execute(tx)
        .await?;
    sql(TRIM)
        .bind(request.user_id)
        .bind(most)
        .execute(tx)
        .await?;
    Ok(())
}

/// The request of a page, if it waits for a decision; it is not used up.
pub async fn find(
    conn: &mut Conn,
    hash: SecretHash,
    now: Timestamp,
) -> Result<Option<ShownRequest>, Error> {
    sql(FIND).bind(hash).bind(now).one(conn).await
}

/// Uses a request up for the decision of this transaction. False when it was decided, is too old, or
/// was shown in another session.
pub async fn decide(
    tx: &mut Tx,
    hash: SecretHash,
    session: SessionId,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(DECIDE)
        .bind(hash)
        .bind(session)
        .bind(now)
        .changed(tx)
        .await
}

/// Forgets requests that nobody decided in time, so many at most. Returns how many.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(now).bind(limit).execute(tx).await
}
