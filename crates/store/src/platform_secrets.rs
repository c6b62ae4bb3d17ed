//! Secrets that every process of the platform shares, each under a name. They are made once, and
//! what opens them is in no database.

use jiff::Timestamp;

use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::row::record;
use crate::secret::SealedBytes;
use crate::sql::{sql, statements};

record! {
    /// A secret.
    pub struct PlatformSecret from "platform_secrets" {
        /// What it is for.
        pub name: String,
        /// The secret, encrypted by the caller.
        pub sealed: SealedBytes,
        /// When it was made.
        pub created_at: Timestamp,
    }
}

statements! {
    // Of several that are made at once, the first one stays.
    INSERT = "INSERT INTO platform_secrets (name, sealed, created_at) VALUES ($1, $2, $3) \
        ON CONFLICT (name) DO NOTHING";
    BY_NAME = "SELECT name, sealed, created_at FROM platform_secrets WHERE name = $1";
}

/// Adds a secret. False when there is one of this name: that one is used.
pub async fn insert(tx: &mut Tx, new: &PlatformSecret) -> Result<bool, Error> {
    sql(INSERT)
        .bind(&new.name)
        .bind(&new.sealed)
        .bind(new.created_at)
        .changed(tx)
        .await
}

/// The secret of this name.
pub async fn by_name(conn: &mut Conn, name: &str) -> Result<Option<PlatformSecret>, Error> {
    sql(BY_NAME).bind(name).one(conn).await
}
