//! Named secrets that all processes of the platform share. They are created once, and the key that
//! decrypts them is not in any database.

use jiff::Timestamp;

use crate::database::connection::{Conn, Tx};
use crate::database::row::record;
use crate::database::secret::SealedBytes;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// A secret.
    pub struct PlatformSecret from "platform_secrets" {
        /// Purpose.
        pub name: String,
        /// The secret, encrypted by the caller.
        pub sealed: SealedBytes,
        /// Creation time.
        pub created_at: Timestamp,
    }
}

statements! {
    // If several are created at the same time, the first one stays.
    INSERT = "INSERT INTO platform_secrets (name, sealed, created_at) VALUES ($1, $2, $3) \
        ON CONFLICT (name) DO NOTHING";
    BY_NAME = "SELECT name, sealed, created_at FROM platform_secrets WHERE name = $1";
}

/// Adds a secret. False if there already is one with this name, which must be used instead.
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
