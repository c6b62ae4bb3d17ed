//! Passkeys of people.

use jiff::Timestamp;
use types::id::{PasskeyId, UserId};

use crate::database::connection::{Conn, Tx};
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// A passkey.
    pub struct Passkey from "passkeys" {
        /// Id.
        pub id: PasskeyId,
        /// The user that owns it.
        pub user_id: UserId,
        /// The authenticator's id for it.
        pub credential_id: Vec<u8>,
        /// Public key in COSE form.
        pub public_key: Vec<u8>,
        /// The authenticator's counter at last use; 0 if it has none.
        pub sign_count: i64,
        /// True if the authenticator has verified the user, by a PIN or a finger.
        pub user_verified: bool,
        /// Display name, chosen by its owner.
        pub name: String,
        /// Time of the registration.
        pub created_at: Timestamp,
        /// Time of last use.
        pub last_used_at: Option<Timestamp>,
    }
}

macro_rules! columns {
    () => {
        "id, user_id, credential_id, public_key, sign_count, user_verified, name, created_at, \
         last_used_at"
    };
}

statements! {
    INSERT = "INSERT INTO passkeys (id, user_id, credential_id, public_key, sign_count, user_verified, \
        name, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    COUNT = "SELECT COUNT(*) AS n FROM passkeys WHERE user_id = $1";
    OF_USER = concat!("SELECT ", columns!(), " FROM passkeys WHERE user_id = $1 ORDER BY id");
    BY_CREDENTIAL = concat!("SELECT ", columns!(), " FROM passkeys WHERE credential_id = $1");
    USE = "UPDATE passkeys SET sign_count = $2, last_used_at = $3, \
        user_verified = user_verified OR $4 \
        WHERE id = $1 AND (sign_count < $2 OR (sign_count = 0 AND $2 = 0))";
    DELETE = "DELETE FROM passkeys WHERE user_id = $1 AND id = $2";
    DELETE_ALL = "DELETE FROM passkeys WHERE user_id = $1";
}

/// Registers a passkey; `last_used_at` is ignored.
///
/// # Errors
/// [`crate::Conflict::PasskeyTaken`].
pub async fn insert(tx: &mut Tx, passkey: &Passkey) -> Result<(), Error> {
    sql(INSERT)
        .bind(passkey.id)
        .bind(passkey.user_id)
        .bind(passkey.credential_id.as_slice())
        .bind(passkey.public_key.as_slice())
        .bind(passkey.sign_count)
        .bind(passkey.user_verified)
        .bind(&passkey.name)
        .bind(passkey.created_at)
        .execute(tx)
        .await?;
    Ok(())
}

/// Number of passkeys of a person.
pub async fn count(conn: &mut Conn, user: UserId) -> Result<u64, Error> {
    sql(COUNT).bind(user).count(conn).await
}

/// A person's passkeys, oldest first.
pub async fn of_user(conn: &mut Conn, user: UserId) -> Result<Vec<Passkey>, Error> {
    sql(OF_USER).bind(user).all(conn).await
}

/// The passkey with this authenticator id.
pub async fn by_credential(conn: &mut Conn, credential: &[u8]) -> Result<Option<Passkey>, Error> {
    sql(BY_CREDENTIAL).bind(credential).one(conn).await
}

/// Records a use. False if the counter did not grow, which indicates a copied authenticator
/// (`WebAuthn` level 2, section 6.1.1); an authenticator without a counter always sends 0. User
/// verification stays recorded after the first time: the caller has checked if this use had another
/// proof, or did not need one.
pub async fn record_use(
    tx: &mut Tx,
    id: PasskeyId,
    sign_count: i64,
    user_verified: bool,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(USE)
        .bind(id)
        .bind(sign_count)
        .bind(now)
        .bind(user_verified)
        .changed(tx)
        .await
}

/// Removes a passkey of a person.
pub async fn delete(tx: &mut Tx, user: UserId, id: PasskeyId) -> Result<bool, Error> {
    sql(DELETE).bind(user).bind(id).changed(tx).await
}

/// Removes all passkeys of a person. Returns their number.
pub async fn delete_all(tx: &mut Tx, user: UserId) -> Result<u64, Error> {
    sql(DELETE_ALL).bind(user).execute(tx).await
}
