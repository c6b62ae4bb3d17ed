//! Browser sessions of signed-in users.

use jiff::{SignedDuration, Timestamp};
use types::id::{SessionId, UserId};

use crate::accounts::users;
use crate::credentials::revoked_tokens;
use crate::database::connection::{Conn, Tx};
use crate::database::row::record;
use crate::database::secret::SecretHash;
use crate::database::sql::{Query, sql, statements};
use crate::error::Error;

record! {
    /// A browser session.
    pub struct Session from "sessions" {
        /// Id, for the list that the user sees.
        pub id: SessionId,
        /// Hash of the cookie.
        pub hash: SecretHash,
        /// The signed-in user.
        pub user_id: UserId,
        /// The `User-Agent` of the browser.
        pub user_agent: Option<String>,
        /// Address at sign-in.
        pub ip: Option<String>,
        /// Time of the last second-factor proof.
        pub second_factor_at: Option<Timestamp>,
        /// Time of the last proof with a password or a second factor.
        pub proved_at: Timestamp,
        /// Start time.
        pub created_at: Timestamp,
        /// Time of the last rotation of the cookie.
        pub rotated_at: Timestamp,
        /// Approximate time of last use.
        pub last_seen_at: Timestamp,
        /// Expiry.
        pub expires_at: Timestamp,
        /// Permissions; none: not restricted.
        pub permissions: Option<Vec<String>>,
        /// Boundaries, the `resources` object; none: no boundary.
        pub resources: Option<serde_json::Value>,
    }
}

record! {
    /// The identity at an OpenID provider that started a session.
    pub struct ProviderSession from "sessions" {
        /// The session here.
        pub id: SessionId,
        /// The signed-in user.
        pub user_id: UserId,
        /// The provider.
        pub openid_issuer: String,
        /// The provider's identifier of the user.
        pub openid_subject: String,
        /// The provider's identifier of its session.
        pub openid_sid: Option<String>,
    }
}

macro_rules! provider_columns {
    () => {
        "id, user_id, openid_issuer, openid_subject, openid_sid"
    };
}

macro_rules! columns {
    () => {
        "id, hash, user_id, user_agent, ip, second_factor_at, proved_at, created_at, rotated_at, \
         last_seen_at, expires_at, permissions, resources"
    };
}

statements! {
    INSERT = concat!("INSERT INTO sessions (", columns!(), ") \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)");
    LIVE = concat!("SELECT ", columns!(), " FROM sessions WHERE hash = $1 AND expires_at > $2");
    OF_USER = concat!("SELECT ", columns!(), " FROM sessions WHERE user_id = $1 AND expires_at > $2 ORDER BY id");
    ROTATE = "UPDATE sessions SET hash = $2, rotated_at = $3, last_seen_at = $3, \
        expires_at = $4 WHERE hash = $1 AND expires_at > $3";
    SECOND_FACTOR = "UPDATE sessions SET second_factor_at = $2, proved_at = $2 WHERE id = $1";
    PROVED = "UPDATE sessions SET proved_at = $2 WHERE id = $1";
    SEEN = "UPDATE sessions SET last_seen_at = $2 WHERE id = $1 AND last_seen_at < $2";
    END = "DELETE FROM sessions WHERE hash = $1 RETURNING id";
    END_BY_ID = "DELETE FROM sessions WHERE id = $1 RETURNING id";
    END_ONE = "DELETE FROM sessions WHERE user_id = $1 AND id = $2 RETURNING id";
    END_OTHERS = "DELETE FROM sessions WHERE user_id = $1 AND id <> $2 RETURNING id";
    TRIM = "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE user_id = $1 \
        ORDER BY last_seen_at DESC, id DESC LIMIT $3 OFFSET $2) RETURNING id";
    END_ALL = "DELETE FROM sessions WHERE user_id = $1 RETURNING id";
    SET_PROVIDER = "UPDATE sessions SET openid_issuer = $2, openid_subject = $3, openid_sid = $4 WHERE id = $1";
    PROVIDER = concat!("SELECT ", provider_columns!(), " FROM sessions \
        WHERE hash = $1 AND openid_issuer IS NOT NULL");
    OF_SUBJECT = concat!("SELECT ", provider_columns!(), " FROM sessions \
        WHERE openid_issuer = $1 AND openid_subject = $2 LIMIT 1000");
    OF_SID = concat!("SELECT ", provider_columns!(), " FROM sessions \
        WHERE openid_issuer = $1 AND openid_sid = $2 LIMIT 1000");
    PURGE = "DELETE FROM sessions WHERE id IN \
        (SELECT id FROM sessions WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
    PURGE_UNUSED = "DELETE FROM sessions WHERE id IN \
        (SELECT id FROM sessions WHERE last_seen_at <= $1 ORDER BY last_seen_at LIMIT $2)";
}

/// Adds a session.
pub async fn insert(tx: &mut Tx, session: &Session) -> Result<(), Error> {
    let permissions = session
        .permissions
        .as_ref()
        .map(|permissions| serde_json::json!(permissions));
    sql(INSERT)
        .bind(session.id)
        .bind(session.hash)
        .bind(session.user_id)
        .bind(session.user_agent.as_ref())
        .bind(session.ip.as_ref())
        .bind(session.second_factor_at)
        .bind(session.proved_at)
        .bind(session.created_at)
        .bind(session.rotated_at)
        .bind(session.last_seen_at)
        .bind(session.expires_at)
        .bind(permissions.as_ref())
        .bind(session.resources.as_ref())
        .execute(tx)
        .await?;
    Ok(())
}

/// Records the provider's identity that started a session.
pub async fn set_provider(
    tx: &mut Tx,
    id: SessionId,
    issuer: &str,
    subject: &str,
    sid: Option<&str>,
) -> Result<bool, Error> {
    sql(SET_PROVIDER)
        .bind(id)
        .bind(issuer)
        .bind(subject)
        .bind(sid)
        .changed(tx)
        .await
}

/// The provider's identity that started the session of a cookie; `None` if no provider did.
pub async fn provider(conn: &mut Conn, hash: SecretHash) -> Result<Option<ProviderSession>, Error> {
    sql(PROVIDER).bind(hash).one(conn).await
}

/// The sessions that a provider's user started, at most 1000.
pub async fn of_subject(
    conn: &mut Conn,
    issuer: &str,
    subject: &str,
) -> Result<Vec<ProviderSession>, Error> {
    sql(OF_SUBJECT).bind(issuer).bind(subject).all(conn).await
}

/// The sessions that a session at a provider started, at most 1000.
pub async fn of_sid(
    conn: &mut Conn,
    issuer: &str,
    sid: &str,
) -> Result<Vec<ProviderSession>, Error> {
    sql(OF_SID).bind(issuer).bind(sid).all(conn).await
}

/// The session of a cookie, if it has not ended.
pub async fn live(
    conn: &mut Conn,
    hash: SecretHash,
    now: Timestamp,
) -> Result<Option<Session>, Error> {
    sql(LIVE).bind(hash).bind(now).one(conn).await
}

/// A person's sessions that have not ended, oldest first.
pub async fn of_user(conn: &mut Conn, user: UserId, now: Timestamp) -> Result<Vec<Session>, Error> {
    sql(OF_USER).bind(user).bind(now).all(conn).await
}

/// Replaces the cookie. False if the old one is not valid any more: of two concurrent attempts, one
/// succeeds.
pub async fn rotate(
    tx: &mut Tx,
    old: SecretHash,
    new: SecretHash,
    now: Timestamp,
    expires_at: Timestamp,
) -> Result<bool, Error> {
    sql(ROTATE)
        .bind(old)
        .bind(new)
        .bind(now)
        .bind(expires_at)
        .changed(tx)
        .await
}

/// Records a new proof of identity.
pub async fn record_proof(tx: &mut Tx, id: SessionId, now: Timestamp) -> Result<bool, Error> {
    sql(PROVED).bind(id).bind(now).changed(tx).await
}

/// Records a second-factor proof.
pub async fn second_factor(tx: &mut Tx, id: SessionId, now: Timestamp) -> Result<bool, Error> {
    sql(SECOND_FACTOR).bind(id).bind(now).changed(tx).await
}

/// Records a use; the caller does so at most every few minutes.
pub async fn record_use(tx: &mut Tx, id: SessionId, now: Timestamp) -> Result<bool, Error> {
    sql(SEEN).bind(id).bind(now).changed(tx).await
}

/// Ends the session of a cookie, and everything that was minted from it.
pub async fn end(tx: &mut Tx, hash: SecretHash, now: Timestamp) -> Result<bool, Error> {
    Ok(ended(tx, sql(END).bind(hash), now).await? > 0)
}

/// Ends a session, and everything that was minted from it. Unlike [`end`], it also ends a session
/// whose cookie was replaced meanwhile.
pub async fn end_by_id(tx: &mut Tx, id: SessionId, now: Timestamp) -> Result<bool, Error> {
    Ok(ended(tx, sql(END_BY_ID).bind(id), now).await? > 0)
}

/// Ends one of a person's sessions, and all of the person's sessions at tunnels. It is unknown
/// which of those belong to it, and a browser with another session here is signed in there again
/// unnoticed.
pub async fn end_one(
    tx: &mut Tx,
    user: UserId,
    id: SessionId,
    now: Timestamp,
) -> Result<bool, Error> {
    users::end_sessions(tx, user, now).await?;
    Ok(ended(tx, sql(END_ONE).bind(user).bind(id), now).await? > 0)
}

/// Ends all of a person's sessions, except for the one to keep, and those at tunnels. Returns the
/// number of sessions here.
pub async fn end_all(
    tx: &mut Tx,
    user: UserId,
    keep: Option<SessionId>,
    now: Timestamp,
) -> Result<u64, Error> {
    users::end_sessions(tx, user, now).await?;
    let end = match keep {
        Some(keep) => sql(END_OTHERS).bind(user).bind(keep),
        None => sql(END_ALL).bind(user),
    };
    ended(tx, end, now).await
}

/// Ends the least recently used sessions of a person beyond `most`, at most `limit` of them.
/// Returns their number.
pub async fn trim(
    tx: &mut Tx,
    user: UserId,
    (most, limit): (u32, u32),
    now: Timestamp,
) -> Result<u64, Error> {
    ended(tx, sql(TRIM).bind(user).bind(most).bind(limit), now).await
}

/// Ends sessions. Their tokens and tunnel sessions have not expired yet: the platform refuses them
/// because the session is missing, and engines are notified.
async fn ended(tx: &mut Tx, end: Query, now: Timestamp) -> Result<u64, Error> {
    let ended: Vec<SessionId> = end.all(tx).await?;
    let until = now
        .saturating_add(MAX_DERIVED_LIFETIME)
        .unwrap_or(Timestamp::MAX);
    for id in &ended {
        revoked_tokens::revoke(tx, id.as_str(), until, now).await?;
    }
    Ok(u64::try_from(ended.len()).unwrap_or(u64::MAX))
}

/// Maximum lifetime of anything that is derived from a session: one hour for a token, twelve for a
/// session at a tunnel.
pub const MAX_DERIVED_LIFETIME: SignedDuration = SignedDuration::from_hours(12);

/// Deletes at most `limit` expired sessions. Returns their number.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(now).bind(limit).execute(tx).await
}

/// Deletes at most `limit` sessions that were not used since this time. Returns their number.
pub async fn purge_unused(tx: &mut Tx, since: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE_UNUSED).bind(since).bind(limit).execute(tx).await
}
