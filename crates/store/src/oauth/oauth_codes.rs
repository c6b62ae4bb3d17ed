//! Authorization codes of OAuth (RFC 6749 section 4.1): each is redeemed once (OA-3).

use jiff::Timestamp;
use types::id::{CredentialId, SessionId, UserId};

use crate::database::connection::{Conn, Tx};
use crate::database::row::record;
use crate::database::secret::SecretHash;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// A code with the data of its authorization.
    pub struct Code from "oauth_codes" {
        /// Hash of the code.
        pub hash: SecretHash,
        /// The client that it was issued to.
        pub client_id: String,
        /// The callback that it was sent to.
        pub redirect_uri: String,
        /// SHA-256 of the client's verifier (RFC 7636 section 4.2).
        pub challenge: SecretHash,
        /// The approving user.
        pub user_id: UserId,
        /// The session of the approval.
        pub session_id: SessionId,
        /// The approved permissions.
        pub permissions: Vec<String>,
        /// The boundary of the session; none: no boundary.
        pub resources: Option<serde_json::Value>,
        /// Creation time.
        pub created_at: Timestamp,
        /// Expiry.
        pub expires_at: Timestamp,
    }
}

record! {
    /// The credential that was issued for a redeemed code.
    pub struct RedeemedCode from "oauth_codes" {
        /// The user that owns it.
        pub user_id: UserId,
        /// The token's credential.
        pub credential_id: CredentialId,
    }
}

/// A client that redeems a code, with its proof.
#[derive(Clone, Copy, Debug)]
pub struct Redeemer<'a> {
    /// The client.
    pub client_id: &'a str,
    /// The callback in the request.
    pub redirect_uri: &'a str,
    /// SHA-256 of the verifier in the request.
    pub challenge: SecretHash,
}

macro_rules! columns {
    () => {
        "hash, client_id, redirect_uri, challenge, user_id, session_id, permissions, resources, \
         created_at, expires_at"
    };
}

statements! {
    INSERT = concat!("INSERT INTO oauth_codes (", columns!(), ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)");
    // The condition includes everything that the code is bound to. Of many concurrent attempts one
    // succeeds, and an attempt with an incomplete proof does not use up the code.
    REDEEM = concat!("UPDATE oauth_codes SET used_at = $2, credential_id = $3 WHERE hash = $1 \
        AND client_id = $4 AND redirect_uri = $5 AND challenge = $6 AND used_at IS NULL AND expires_at > $2 \
        RETURNING ", columns!());
    REDEEMED = "SELECT user_id, credential_id FROM oauth_codes WHERE hash = $1 AND used_at IS NOT NULL \
        AND credential_id IS NOT NULL";
    PURGE = "DELETE FROM oauth_codes WHERE hash IN \
        (SELECT hash FROM oauth_codes WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
}

/// Records a code that is about to be issued.
pub async fn insert(tx: &mut Tx, code: &Code) -> Result<(), Error> {
    sql(INSERT)
        .bind(code.hash)
        .bind(&code.client_id)
        .bind(&code.redirect_uri)
        .bind(code.challenge)
        .bind(code.user_id)
        .bind(code.session_id)
        .bind(&serde_json::json!(code.permissions))
        .bind(code.resources.as_ref())
        .bind(code.created_at)
        .bind(code.expires_at)
        .execute(tx)
        .await?;
    Ok(())
}

/// Redeems the code for a credential that this transaction adds. `None`: it is unknown, belongs to
/// another client, has expired, or was already redeemed.
pub async fn redeem(
    tx: &mut Tx,
    hash: SecretHash,
    by: Redeemer<'_>,
    credential: CredentialId,
    now: Timestamp,
) -> Result<Option<Code>, Error> {
    sql(REDEEM)
        .bind(hash)
        .bind(now)
        .bind(credential)
        .bind(by.client_id)
        .bind(by.redirect_uri)
        .bind(by.challenge)
        .one(tx)
        .await
}

/// The credential that was issued for the code, if it was redeemed.
pub async fn redeemed(conn: &mut Conn, hash: SecretHash) -> Result<Option<RedeemedCode>, Error> {
    sql(REDEEMED).bind(hash).one(conn).await
}

/// Deletes at most `limit` codes that had ended by this time. Returns their number.
pub async fn purge(tx: &mut Tx, ended_by: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(ended_by).bind(limit).execute(tx).await
}
