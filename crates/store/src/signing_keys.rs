//! Keys that the platform signs with. One is active; others are about to be, or were, and stay
//! public while tokens of theirs can be around.

use jiff::Timestamp;

use crate::changes::Change;
use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::row::{record, words};
use crate::secret::SealedBytes;
use crate::sql::{sql, statements};

record! {
    /// A signing key.
    pub struct SigningKey from "signing_keys" {
        /// Name in token headers.
        pub kid: String,
        /// JWS algorithm.
        pub algorithm: String,
        /// Private key, encrypted by the caller; empty once it is retired.
        pub sealed_private_key: SealedBytes,
        /// Public key as a JWK.
        pub public_jwk: serde_json::Value,
        /// Its place in the rotation.
        pub status: Status,
        /// When it was made.
        pub created_at: Timestamp,
        /// When it became active.
        pub activated_at: Option<Timestamp>,
        /// When the next one did.
        pub retired_at: Option<Timestamp>,
    }
}

words! {
    /// A key's place in the rotation.
    pub enum Status {
        /// Public, so that verifiers have it before it signs.
        Next = "next",
        /// Signs.
        Active = "active",
        /// Public until its last token has ended.
        Retired = "retired",
    }
}

macro_rules! columns {
    () => {
        "kid, algorithm, sealed_private_key, public_jwk, status, created_at, activated_at, retired_at"
    };
}

statements! {
    // Of keys that are to be active, one is, and one is next, however many are made at once.
    INSERT = concat!("INSERT INTO signing_keys (", columns!(), ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
        ON CONFLICT DO NOTHING");
    ALL = concat!("SELECT ", columns!(), " FROM signing_keys ORDER BY created_at, kid");
    ACTIVE = concat!("SELECT ", columns!(), " FROM signing_keys WHERE status = 'active'");
    RETIRE = "UPDATE signing_keys SET status = 'retired', retired_at = $2, sealed_private_key = $3 \
        WHERE kid = $1 AND status = 'active'";
    ACTIVATE = "UPDATE signing_keys SET status = 'active', activated_at = $2 WHERE kid = $1 AND status = 'next'";
    // A token from before keys were noted was signed by one of those that there were.
    PURGE = "DELETE FROM signing_keys WHERE status = 'retired' AND retired_at <= $1 \
        AND NOT EXISTS (SELECT 1 FROM credentials c WHERE c.kind = 'pat' AND c.revoked_at IS NULL \
        AND (c.expires_at IS NULL OR c.expires_at > $2) AND (c.signing_key = signing_keys.kid \
        OR (c.signing_key IS NULL AND c.created_at <= signing_keys.retired_at)))";
}

/// Adds a key. False when it is to be active or next, and another one is: a second process was
/// quicker, and its key is used.
pub async fn insert(tx: &mut Tx, key: &SigningKey) -> Result<bool, Error> {
    tx.note(Change::keys(), key.created_at);
    sql(INSERT)
        .bind(&key.kid)
        .bind(&key.algorithm)
        .bind(&key.sealed_private_key)
        .bind(&key.public_jwk)
        .bind(key.status)
        .bind(key.created_at)
        .bind(key.activated_at)
        .bind(key.retired_at)
        .changed(tx)
        .await
}

/// All keys that are public, oldest first.
pub async fn all(conn: &mut Conn) -> Result<Vec<SigningKey>, Error> {
    sql(ALL).all(conn).await
}

/// The key that signs.
pub async fn active(conn: &mut Conn) -> Result<Option<SigningKey>, Error> {
    sql(ACTIVE).one(conn).await
}

/// Lets the next key sign instead of the active one, whose private half is forgotten. False when
/// they are not (any more) that, and then the transaction is to be dropped.
pub async fn rotate(tx: &mut Tx, active: &str, next: &str, now: Timestamp) -> Result<bool, Error> {
    tx.note(Change::keys(), now);
    let nothing = SealedBytes(Vec::new());
    let retired = sql(RETIRE)
        .bind(active)
        .bind(now)
        .bind(&nothing)
        .changed(tx)
        .await?;
    Ok(retired && sql(ACTIVATE).bind(next).bind(now).changed(tx).await?)
}

/// Forgets keys that were retired by this time, but for those that signed a personal token that
/// is still good. Returns how many.
pub async fn purge(tx: &mut Tx, retired_by: Timestamp, now: Timestamp) -> Result<u64, Error> {
    let forgotten = sql(PURGE).bind(retired_by).bind(now).execute(tx).await?;
    if forgotten > 0 {
        tx.note(Change::keys(), now);
    }
    Ok(forgotten)
}
