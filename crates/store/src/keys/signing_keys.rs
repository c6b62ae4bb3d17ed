//! Signing keys of the platform. One key is active. The next one and retired ones are published as
//! well, the latter while tokens signed with them may still be valid.

use jiff::Timestamp;

use crate::database::changes::Change;
use crate::database::connection::{Conn, Tx};
use crate::database::row::{record, words};
use crate::database::secret::SealedBytes;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// A signing key.
    pub struct SigningKey from "signing_keys" {
        /// Key id in token headers.
        pub kid: String,
        /// JWS algorithm.
        pub algorithm: String,
        /// Private key, encrypted by the caller; empty once the key is retired.
        pub sealed_private_key: SealedBytes,
        /// Public key as a JWK.
        pub public_jwk: serde_json::Value,
        /// Rotation state.
        pub status: Status,
        /// Creation time.
        pub created_at: Timestamp,
        /// Time when it became active.
        pub activated_at: Option<Timestamp>,
        /// Time when the next key became active.
        pub retired_at: Option<Timestamp>,
    }
}

words! {
    /// Rotation state of a key.
    pub enum Status {
        /// Published, so that verifiers have it before it signs.
        Next = "next",
        /// Signs new tokens.
        Active = "active",
        /// Published until its last token has expired.
        Retired = "retired",
    }
}

macro_rules! columns {
    () => {
        "kid, algorithm, sealed_private_key, public_jwk, status, created_at, activated_at, retired_at"
    };
}

statements! {
    // There is at most one active and one next key, however many are created concurrently.
    INSERT = concat!("INSERT INTO signing_keys (", columns!(), ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
        ON CONFLICT DO NOTHING");
    ALL = concat!("SELECT ", columns!(), " FROM signing_keys ORDER BY created_at, kid");
    ACTIVE = concat!("SELECT ", columns!(), " FROM signing_keys WHERE status = 'active'");
    RETIRE = "UPDATE signing_keys SET status = 'retired', retired_at = $2, sealed_private_key = $3 \
        WHERE kid = $1 AND status = 'active'";
    ACTIVATE = "UPDATE signing_keys SET status = 'active', activated_at = $2 WHERE kid = $1 AND status = 'next'";
    // A token from before the key id was recorded may have been signed with any of the keys of that
    // time.
    PURGE = "DELETE FROM signing_keys WHERE status = 'retired' AND retired_at <= $1 \
        AND NOT EXISTS (SELECT 1 FROM credentials c WHERE c.kind = 'pat' AND c.revoked_at IS NULL \
        AND (c.expires_at IS NULL OR c.expires_at > $2) AND (c.signing_key = signing_keys.kid \
        OR (c.signing_key IS NULL AND c.created_at <= signing_keys.retired_at)))";
}

/// Adds a key. False if there already is an active or next key: another process was faster, and its
/// key is used.
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

/// All published keys, oldest first.
pub async fn all(conn: &mut Conn) -> Result<Vec<SigningKey>, Error> {
    sql(ALL).all(conn).await
}

/// The active key.
pub async fn active(conn: &mut Conn) -> Result<Option<SigningKey>, Error> {
    sql(ACTIVE).one(conn).await
}

/// Makes the next key active and deletes the private key of the previous one. False if their states
/// have changed: then the transaction must be dropped.
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

/// Deletes keys that were retired by this time, except those that signed a personal token that is
/// still valid. Returns their number.
pub async fn purge(tx: &mut Tx, retired_by: Timestamp, now: Timestamp) -> Result<u64, Error> {
    let forgotten = sql(PURGE).bind(retired_by).bind(now).execute(tx).await?;
    if forgotten > 0 {
        tx.note(Change::keys(), now);
    }
    Ok(forgotten)
}
