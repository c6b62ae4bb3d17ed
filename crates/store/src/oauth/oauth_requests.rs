//! Authorization requests that a consent page showed: each is decided once.

use jiff::Timestamp;
use types::id::{SessionId, UserId};

use crate::database::connection::{Conn, Tx};
use crate::database::row::record;
use crate::database::secret::SecretHash;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// A request that waits for a decision.
    pub struct ShownRequest from "oauth_requests" {
        /// Hash of the secret in the form of the page.
        pub hash: SecretHash,
        /// The user that the page was shown to.
        pub user_id: UserId,
        /// The session in which it was shown.
        pub session_id: SessionId,
        /// The request in its normal form.
        pub query: String,
        /// Expiry.
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
    // Limits pages that were opened and abandoned: only the newest few can be decided.
    TRIM = "DELETE FROM oauth_requests WHERE user_id = $1 AND hash NOT IN (SELECT hash FROM oauth_requests \
        WHERE user_id = $1 ORDER BY expires_at DESC, hash LIMIT $2)";
    FIND = concat!("SELECT ", columns!(), " FROM oauth_requests WHERE hash = $1 AND expires_at > $2");
    // Of two concurrent decisions, one succeeds.
    DECIDE = "DELETE FROM oauth_requests WHERE hash = $1 AND session_id = $2 AND expires_at > $3";
    PURGE = "DELETE FROM oauth_requests WHERE hash IN \
        (SELECT hash FROM oauth_requests WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
}

/// Stores a request that is about to be shown, and deletes older ones of the person so that `most`
/// remain in all.
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

/// The request of a page, if it waits for a decision. It is not used up.
pub async fn find(
    conn: &mut Conn,
    hash: SecretHash,
    now: Timestamp,
) -> Result<Option<ShownRequest>, Error> {
    sql(FIND).bind(hash).bind(now).one(conn).await
}

/// Uses up a request for the decision of this transaction. False if it was decided, has expired, or
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

/// Deletes at most `limit` requests that were not decided in time. Returns their number.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(now).bind(limit).execute(tx).await
}
