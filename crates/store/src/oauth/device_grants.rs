//! Device authorization grants (RFC 8628): each is decided once and redeemed once (OA-4).

use jiff::Timestamp;
use types::id::{CredentialId, SessionId, UserId};

use crate::database::connection::{Conn, Tx};
use crate::database::row::{record, words};
use crate::database::secret::SecretHash;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// The request of a device.
    pub struct DeviceGrant from "oauth_device_grants" {
        /// Hash of the device code.
        pub hash: SecretHash,
        /// Keyed hash of the user code.
        pub user_code_hash: SecretHash,
        /// The client.
        pub client_id: String,
        /// The requested permissions; after approval the granted ones.
        pub permissions: Vec<String>,
        /// The boundary of the approving session; none: no boundary.
        pub resources: Option<serde_json::Value>,
        /// The device's description of itself.
        pub source: Option<serde_json::Value>,
        /// Client address of the device.
        pub ip: String,
        /// Time of the request.
        pub created_at: Timestamp,
        /// Expiry.
        pub expires_at: Timestamp,
        /// Minimum seconds between two polls.
        pub interval_seconds: i64,
        /// Status.
        pub status: Status,
        /// The deciding user.
        pub user_id: Option<UserId>,
        /// The session of the decision.
        pub session_id: Option<SessionId>,
    }
}

words! {
    /// Status of a device's request.
    pub enum Status {
        /// Not decided yet.
        Pending = "pending",
        /// Approved, but not redeemed yet.
        Approved = "approved",
        /// Denied.
        Denied = "denied",
        /// The token was issued.
        Redeemed = "redeemed",
    }
}

/// A person's approval.
#[derive(Clone, Copy, Debug)]
pub struct Approval<'a> {
    /// The granted permissions.
    pub permissions: &'a [String],
    /// The boundary of the grant; none: no boundary.
    pub resources: Option<&'a serde_json::Value>,
}

macro_rules! columns {
    () => {
        "hash, user_code_hash, client_id, permissions, resources, source, ip, created_at, expires_at, \
         interval_seconds, status, user_id, session_id"
    };
}

statements! {
    INSERT = concat!("INSERT INTO oauth_device_grants (", columns!(), ", network) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)");
    BY_CODE = concat!("SELECT ", columns!(), " FROM oauth_device_grants WHERE hash = $1");
    PENDING = concat!("SELECT ", columns!(), " FROM oauth_device_grants \
        WHERE user_code_hash = $1 AND status = 'pending' AND expires_at > $2");
    COUNT = "SELECT COUNT(*) AS n FROM oauth_device_grants WHERE expires_at > $1";
    COUNT_OF_NETWORK = "SELECT COUNT(*) AS n FROM oauth_device_grants WHERE network = $1 AND expires_at > $2";
    // The oldest requests of the network with the most requests.
    MAKE_ROOM = "DELETE FROM oauth_device_grants WHERE hash IN (SELECT hash FROM oauth_device_grants \
        WHERE status = 'pending' AND expires_at > $1 AND network = (SELECT network FROM oauth_device_grants \
        WHERE status = 'pending' AND expires_at > $1 GROUP BY network ORDER BY COUNT(*) DESC, network LIMIT 1) \
        ORDER BY created_at LIMIT $2)";
    APPROVE = "UPDATE oauth_device_grants SET status = 'approved', user_id = $3, session_id = $4, \
        permissions = $5, resources = $6, decided_at = $2 \
        WHERE user_code_hash = $1 AND status = 'pending' AND expires_at > $2";
    DENY = "UPDATE oauth_device_grants SET status = 'denied', user_id = $3, session_id = $4, decided_at = $2 \
        WHERE user_code_hash = $1 AND status = 'pending' AND expires_at > $2";
    // Of several concurrent polls, one succeeds.
    POLL = "UPDATE oauth_device_grants SET last_polled_at = $2 WHERE hash = $1 \
        AND (last_polled_at IS NULL OR last_polled_at + interval_seconds * 1000000 <= $2)";
    SLOW_DOWN = "UPDATE oauth_device_grants SET last_polled_at = $2, interval_seconds = interval_seconds + $3 \
        WHERE hash = $1";
    REDEEM = concat!("UPDATE oauth_device_grants SET status = 'redeemed', credential_id = $3 \
        WHERE hash = $1 AND client_id = $4 AND status = 'approved' AND expires_at > $2 RETURNING ", columns!());
    PURGE = "DELETE FROM oauth_device_grants WHERE hash IN \
        (SELECT hash FROM oauth_device_grants WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
}

/// Records the request of a device from this network.
///
/// # Errors
/// [`crate::Conflict::UserCodeTaken`].
pub async fn insert(tx: &mut Tx, grant: &DeviceGrant, network: &str) -> Result<(), Error> {
    sql(INSERT)
        .bind(grant.hash)
        .bind(grant.user_code_hash)
        .bind(&grant.client_id)
        .bind(&serde_json::json!(grant.permissions))
        .bind(grant.resources.as_ref())
        .bind(grant.source.as_ref())
        .bind(&grant.ip)
        .bind(grant.created_at)
        .bind(grant.expires_at)
        .bind(grant.interval_seconds)
        .bind(grant.status)
        .bind(grant.user_id)
        .bind(grant.session_id)
        .bind(network)
        .execute(tx)
        .await?;
    Ok(())
}

/// The request of a device code, in any state and of any age.
pub async fn by_code(conn: &mut Conn, hash: SecretHash) -> Result<Option<DeviceGrant>, Error> {
    sql(BY_CODE).bind(hash).one(conn).await
}

/// The pending request of a user code.
pub async fn pending(
    conn: &mut Conn,
    user_code: SecretHash,
    now: Timestamp,
) -> Result<Option<DeviceGrant>, Error> {
    sql(PENDING).bind(user_code).bind(now).one(conn).await
}

/// Number of pending codes that a guess could match.
pub async fn count(conn: &mut Conn, now: Timestamp) -> Result<u64, Error> {
    sql(COUNT).bind(now).count(conn).await
}

/// Number of these codes that were requested from one network.
pub async fn count_of_network(
    conn: &mut Conn,
    network: &str,
    now: Timestamp,
) -> Result<u64, Error> {
    sql(COUNT_OF_NETWORK)
        .bind(network)
        .bind(now)
        .count(conn)
        .await
}

/// Deletes the oldest pending requests, at most `limit`, of the network with the most requests.
pub async fn make_room(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(MAKE_ROOM).bind(now).bind(limit).execute(tx).await
}

/// Approves a request. False if it is not pending any more: of two concurrent decisions, one
/// succeeds.
pub async fn approve(
    tx: &mut Tx,
    user_code: SecretHash,
    (user, session): (UserId, SessionId),
    approval: Approval<'_>,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(APPROVE)
        .bind(user_code)
        .bind(now)
        .bind(user)
        .bind(session)
        .bind(&serde_json::json!(approval.permissions))
        .bind(approval.resources)
        .changed(tx)
        .await
}

/// Denies a request. False if it is not pending any more.
pub async fn deny(
    tx: &mut Tx,
    user_code: SecretHash,
    (user, session): (UserId, SessionId),
    now: Timestamp,
) -> Result<bool, Error> {
    sql(DENY)
        .bind(user_code)
        .bind(now)
        .bind(user)
        .bind(session)
        .changed(tx)
        .await
}

/// Records a poll. False if it came too soon: the device then has to wait `more_seconds` longer
/// from now on (RFC 8628 section 3.5).
pub async fn poll(
    tx: &mut Tx,
    hash: SecretHash,
    more_seconds: i64,
    now: Timestamp,
) -> Result<bool, Error> {
    if sql(POLL).bind(hash).bind(now).changed(tx).await? {
        return Ok(true);
    }
    sql(SLOW_DOWN)
        .bind(hash)
        .bind(now)
        .bind(more_seconds)
        .execute(tx)
        .await?;
    Ok(false)
}

/// Redeems an approval for a credential that this transaction adds. `None`: it is not approved,
/// belongs to another client, has expired, or was already redeemed.
pub async fn redeem(
    tx: &mut Tx,
    hash: SecretHash,
    client_id: &str,
    credential: CredentialId,
    now: Timestamp,
) -> Result<Option<DeviceGrant>, Error> {
    sql(REDEEM)
        .bind(hash)
        .bind(now)
        .bind(credential)
        .bind(client_id)
        .one(tx)
        .await
}

/// Deletes at most `limit` requests that had ended by this time. Returns their number.
pub async fn purge(tx: &mut Tx, ended_by: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(ended_by).bind(limit).execute(tx).await
}
