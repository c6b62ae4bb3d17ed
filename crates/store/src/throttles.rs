//! Counters of failed attempts, by whatever the caller counts: an account, an address.

use jiff::Timestamp;

use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::row::record;
use crate::sql::{sql, statements};

record! {
    /// Failures in the present window.
    pub struct Throttle from "throttles" {
        /// How many.
        pub failures: i64,
        /// When they are forgotten.
        pub window_ends_at: Timestamp,
    }
}

statements! {
    BY_SUBJECT = "SELECT failures, window_ends_at FROM throttles WHERE subject = $1 AND window_ends_at > $2";
    // One statement, so that parallel failures are all counted.
    FAIL = "INSERT INTO throttles (subject, failures, window_ends_at) VALUES ($1, 1, $3) \
        ON CONFLICT (subject) DO UPDATE SET \
        failures = CASE WHEN throttles.window_ends_at > $2 THEN throttles.failures + 1 ELSE 1 END, \
        window_ends_at = excluded.window_ends_at";
    CLEAR = "DELETE FROM throttles WHERE subject = $1";
    PURGE = "DELETE FROM throttles WHERE subject IN \
        (SELECT subject FROM throttles WHERE window_ends_at <= $1 ORDER BY window_ends_at LIMIT $2)";
}

/// The failures that still count. A subject is a word and a key, for example `password:usr_…`.
pub async fn by_subject(
    conn: &mut Conn,
    subject: &str,
    now: Timestamp,
) -> Result<Option<Throttle>, Error> {
    sql(BY_SUBJECT).bind(subject).bind(now).one(conn).await
}

/// Counts one failure; all are forgotten at `window_ends_at` unless there is another.
pub async fn fail(
    tx: &mut Tx,
    subject: &str,
    now: Timestamp,
    window_ends_at: Timestamp,
) -> Result<(), Error> {
    sql(FAIL)
        .bind(subject)
        .bind(now)
        .bind(window_ends_at)
        .execute(tx)
        .await?;
    Ok(())
}

/// Forgets at most `limit` the failures, after a success.
pub async fn clear(tx: &mut Tx, subject: &str) -> Result<(), Error> {
    sql(CLEAR).bind(subject).execute(tx).await?;
    Ok(())
}

/// Removes what does not count any more. Returns how many.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(now).bind(limit).execute(tx).await
}
