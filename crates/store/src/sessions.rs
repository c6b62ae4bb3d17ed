//! Signed-in browsers.

use jiff::{SignedDuration, Timestamp};
use types::id::{SessionId, UserId};

use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::row::record;
use crate::secret::SecretHash;
use crate::sql::{Query, sql, statements};
use crate::{revoked_tokens, users};

record! {
    /// A signed-in browser.
    pub struct Session from "sessions" {
        /// Id, for the list that a person sees.
        pub id: SessionId,
        /// Hash of the cookie.
        pub hash: SecretHash,
        /// Who is signed in.
        pub user_id: UserId,
        /// The browser's own name for itself.
        pub user_agent: Option<String>,
        /// Address at sign-in.
        pub ip: Option<String>,
        /// When the second factor was shown.
        pub second_factor_at: Option<Timestamp>,
        /// When a password or a second factor was last shown.
        pub proved_at: Timestamp,
        /// When it began.
        pub created_at: Timestamp,
        /// When the cookie was last replaced.
        pub rotated_at: Timestamp,
        /// When it was last used, roughly.
        pub last_seen_at: Timestamp,
        /// When it ends.
        pub expires_at: Timestamp,
        /// Permissions; none: not narrowed.
        pub permissions: Option<Vec<String>>,
        /// Boundaries, the `resources` object; none: no boundary.
        pub resources: Option<serde_json::Value>,
    }
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
    END_ONE = "DELETE FROM sessions WHERE user_id = $1 AND id = $2 RETURNING id";
    END_OTHERS = "DELETE FROM sessions WHERE user_id = $1 AND id <> $2 RETURNING id";
    TRIM = "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE user_id = $1 \
        ORDER BY last_seen_at DESC, id DESC LIMIT $3 OFFSET $2) RETURNING id";
    END_ALL = "DELETE FROM sessions WHERE user_id = $1 RETURNING id";
    PURGE = "DELETE FROM sessions WHERE id IN \
        (SELECT id FROM sessions WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
    PURGE_UNUSED = "DELETE FROM sessions WHERE id IN \
        (SELECT id FROM sessions WHERE last_seen_at <= $1 ORDER BY last_seen_at LIMIT $2)";
}

/// Begins a session.
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

/// Replaces the cookie. False when the old one is not live any more: of two that try, one does.
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

/// Notes that the person proved again to be who they are.
pub async fn proved(tx: &mut Tx, id: SessionId, now: Timestamp) -> Result<bool, Error> {
    sql(PROVED).bind(id).bind(now).changed(tx).await
}

/// Notes that the second factor was shown.
pub async fn second_factor(tx: &mut Tx, id: SessionId, now: Timestamp) -> Result<bool, Error> {
    sql(SECOND_FACTOR).bind(id).bind(now).changed(tx).await
}

/// Notes a use; the caller does so at most every few minutes.
pub async fn seen(tx: &mut Tx, id: SessionId, now: Timestamp) -> Result<bool, Error> {
    sql(SEEN).bind(id).bind(now).changed(tx).await
}

/// Ends the session of a cookie, and what was minted from it.
pub async fn end(tx: &mut Tx, hash: SecretHash, now: Timestamp) -> Result<bool, Error> {
    Ok(ended(tx, sql(END).bind(hash), now).await? > 0)
}

/// Ends one of a person's sessions, and those at tunnels: which of them came of it is not known,
/// and who still has another session here is signed in there again without noticing.
pub async fn end_one(
    tx: &mut Tx,
    user: UserId,
    id: SessionId,
    now: Timestamp,
) -> Result<bool, Error> {
    users::end_sessions(tx, user, now).await?;
    Ok(ended(tx, sql(END_ONE).bind(user).bind(id), now).await? > 0)
}

/// Ends all of a person's sessions, but for the one to keep, and those at tunnels. Returns how
/// many there were here.
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

/// Ends the sessions of a person beyond `most` that were not used for longest, at most `limit` of them.
/// Returns how many.
pub async fn trim(
    tx: &mut Tx,
    user: UserId,
    (most, limit): (u32, u32),
    now: Timestamp,
) -> Result<u64, Error> {
    ended(tx, sql(TRIM).bind(user).bind(most).bind(limit), now).await
}

/// Ends sessions. Tokens that were minted from them and sessions at tunnels that they began live for
/// a while yet: the platform misses their session, engines are told of it.
async fn ended(tx: &mut Tx, end: Query, now: Timestamp) -> Result<u64, Error> {
    let ended: Vec<SessionId> = end.all(tx).await?;
    let until = now.saturating_add(BEGUN_LIVES).unwrap_or(Timestamp::MAX);
    for id in &ended {
        revoked_tokens::revoke(tx, id.as_str(), until, now).await?;
    }
    Ok(u64::try_from(ended.len()).unwrap_or(u64::MAX))
}

/// The longest life of what a session began: an hour of a token, twelve of a session at a tunnel.
pub const BEGUN_LIVES: SignedDuration = SignedDuration::from_hours(12);

/// Forgets at most `limit` sessions whose time has come. Returns how many.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(now).bind(limit).execute(tx).await
}

/// Forgets at most `limit` sessions that nobody used since then. Returns how many.
pub async fn purge_unused(tx: &mut Tx, since: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE_UNUSED).bind(since).bind(limit).execute(tx).await
}
