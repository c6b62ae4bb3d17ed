//! Personal access tokens that expire soon, whose owners get one notice.

use jiff::Timestamp;
use types::id::{CredentialId, UserId};

use crate::database::connection::Tx;
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// A token that expires soon.
    pub struct ExpiringToken from "credentials" {
        /// Id.
        pub id: CredentialId,
        /// The user that owns it.
        pub user_id: UserId,
        /// Display name, chosen by its owner.
        pub name: String,
        /// Expiry.
        pub expires_at: Timestamp,
    }
}

statements! {
    // A token whose whole lifetime is within the notice period gets no notice. A rotated token has a
    // successor.
    TAKE = "UPDATE credentials SET expiry_notice_at = $1 WHERE id IN (\
        SELECT id FROM credentials WHERE kind = 'pat' AND revoked_at IS NULL \
        AND expiry_notice_at IS NULL AND rotated_to IS NULL \
        AND expires_at > $1 AND expires_at <= $2 AND expires_at - created_at > $2 - $1 \
        ORDER BY user_id, id LIMIT $3) AND expiry_notice_at IS NULL \
        RETURNING id, user_id, name, expires_at";
    RELEASE = "UPDATE credentials SET expiry_notice_at = NULL WHERE id IN_LIST($1)";
}

/// Marks at most `limit` tokens that expire until `end` as announced, and returns them, sorted by
/// owner.
pub async fn take(
    tx: &mut Tx,
    now: Timestamp,
    end: Timestamp,
    limit: u32,
) -> Result<Vec<ExpiringToken>, Error> {
    let taking = sql(TAKE).bind(now).bind(end).bind(limit).all(tx);
    let mut taken: Vec<ExpiringToken> = taking.await?;
    taken.sort_by_key(|token| (token.user_id, token.expires_at, token.id));
    Ok(taken)
}

/// Removes the marks of tokens whose notice could not be sent.
pub async fn release(tx: &mut Tx, ids: &[CredentialId]) -> Result<(), Error> {
    sql(RELEASE).bind(ids).execute(tx).await?;
    Ok(())
}
