//! Authentication attempts, counted per account and kind of proof over all processes of the
//! platform.

use jiff::Timestamp;

use crate::database::connection::{Conn, Tx};
use crate::database::row::{record, words};
use crate::database::sql::{sql, statements};
use crate::error::Error;

words! {
    /// Kinds of proofs.
    pub enum Kind {
        /// A password.
        Password = "password",
        /// A code of an authenticator app, or a recovery code.
        Code = "code",
        /// A passkey.
        Passkey = "passkey",
    }
}

record! {
    /// Attempts that have not expired.
    pub struct Attempts from "attempts" {
        /// Number of attempts.
        pub count: i64,
        /// Start of the latest attempt.
        pub last_at: Timestamp,
    }
}

statements! {
    FIND = "SELECT count, last_at FROM attempts WHERE kind = $1 AND key = $2 AND expires_at > $3";
    // If several start at the same moment, one of them is the first.
    BEGIN = "INSERT INTO attempts (kind, key, count, last_at, expires_at) VALUES ($1, $2, 1, $3, $4) \
        ON CONFLICT (kind, key) DO UPDATE SET count = 1, last_at = $3, expires_at = $4 \
        WHERE attempts.expires_at <= $3";
    // Conditional on the count from which the delay was computed.
    NEXT = "UPDATE attempts SET count = count + 1, last_at = $3, expires_at = $4 \
        WHERE kind = $1 AND key = $2 AND count = $5";
    FORGET = "DELETE FROM attempts WHERE kind = $1 AND key = $2";
    PURGE = "DELETE FROM attempts WHERE (kind, key) IN \
        (SELECT kind, key FROM attempts WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
}

/// The attempts of a key that have not expired by `now`.
pub async fn find(
    conn: &mut Conn,
    kind: Kind,
    key: &str,
    now: Timestamp,
) -> Result<Option<Attempts>, Error> {
    sql(FIND).bind(kind).bind(key).bind(now).one(conn).await
}

/// Counts an attempt after `before` others. False if another attempt was counted meanwhile: the
/// caller then reads the count again.
pub async fn count(
    tx: &mut Tx,
    (kind, key): (Kind, &str),
    before: i64,
    now: Timestamp,
    forgotten_at: Timestamp,
) -> Result<bool, Error> {
    let text = if before == 0 { BEGIN } else { NEXT };
    let mut counted = sql(text).bind(kind).bind(key).bind(now).bind(forgotten_at);
    if before > 0 {
        counted = counted.bind(before);
    }
    counted.changed(tx).await
}

/// Deletes the attempts of a key.
pub async fn forget(tx: &mut Tx, kind: Kind, key: &str) -> Result<bool, Error> {
    sql(FORGET).bind(kind).bind(key).changed(tx).await
}

/// Deletes at most `limit` expired keys. Returns their number.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(now).bind(limit).execute(tx).await
}
