//! Validity of a request's credential: the credential, its owner and all kinds of revocation, in
//! one statement. Nothing is cached between two requests.

use jiff::Timestamp;
use types::id::{CredentialId, SessionId};

use crate::accounts::users::User;
use crate::credentials::Credential;
use crate::database::connection::Conn;
use crate::database::row::{Record, Row};
use crate::database::secret::SecretHash;
use crate::database::sql::{sql, statements};
use crate::error::{Bug, Error};

/// A caller's credential.
#[derive(Clone, Debug, PartialEq)]
pub struct CallerCredential {
    /// The credential, active or not.
    pub credential: Credential,
    /// Its owner, in any status.
    pub user: User,
    /// True if the owner is an active member of the workspace that the credential is for, or if it
    /// is not limited to a workspace.
    pub is_member: bool,
    /// True if the token itself was revoked, by its `jti`.
    pub is_revoked: bool,
}

/// The session that a caller's token was minted from.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionCaller {
    /// The session, ended or not.
    pub session: SessionId,
    /// Time of the last rotation of its cookie.
    pub rotated_at: Timestamp,
    /// Approximate time of last use.
    pub last_seen_at: Timestamp,
    /// Expiry.
    pub expires_at: Timestamp,
    /// Permissions; none: not restricted.
    pub permissions: Option<Vec<String>>,
    /// Boundaries, the `resources` object; none: no boundary.
    pub resources: Option<serde_json::Value>,
    /// The signed-in user, in any status.
    pub user: User,
    /// True if the token itself was revoked, by its `jti`.
    pub is_revoked: bool,
}

macro_rules! user {
    () => {
        "u.id AS user_id, u.email AS user_email, u.name AS user_name, \
         u.password_hash AS user_password_hash, u.status AS user_status, u.role AS user_role, \
         u.email_verified AS user_email_verified, u.totp_secret AS user_totp_secret, \
         u.totp_confirmed_at AS user_totp_confirmed_at, u.created_at AS user_created_at, \
         u.updated_at AS user_updated_at, \
         EXISTS (SELECT 1 FROM revoked_tokens r WHERE r.jti = $2) AS is_revoked"
    };
}

macro_rules! of_credential {
    ($where:literal) => {
        concat!(
            "SELECT c.id, c.workspace_id, c.kind, c.name, c.token_hash, c.token_endpoint, \
             c.public_key, COALESCE(c.certificate_sha256, c.certificate_fingerprint) AS certificate_fingerprint, c.certificate, c.issuer_fingerprint, \
             c.permissions, c.resources, c.created_at, c.updated_at, c.expires_at, c.revoked_at, \
             c.last_used_at, c.last_used_ip, c.signing_key, c.rotated_to, c.oauth_client, c.issued_by, c.root_id, ",
            user!(),
            ", (c.workspace_id IS NULL OR EXISTS (SELECT 1 FROM members m \
             JOIN workspaces w ON w.id = m.workspace_id AND w.deleted_at IS NULL \
             WHERE m.workspace_id = c.workspace_id AND m.user_id = c.user_id \
             AND m.status = 'active')) AS is_member \
             FROM credentials c JOIN users u ON u.id = c.user_id WHERE ",
            $where
        )
    };
}

statements! {
    BY_TOKEN = of_credential!("c.token_hash = $1");
    BY_CREDENTIAL = of_credential!("c.id = $1");
    BY_SESSION = concat!("SELECT s.id, s.rotated_at, s.last_seen_at, s.expires_at, \
        s.permissions, s.resources, ", user!(),
        " FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.id = $1");
}

/// The credential of a personal token, found by the hash of its text.
pub async fn by_token(
    conn: &mut Conn,
    hash: SecretHash,
    jti: Option<&str>,
) -> Result<Option<CallerCredential>, Error> {
    sql(BY_TOKEN).bind(hash).bind(jti).one(conn).await
}

/// The credential that signed a token, or from which a token was minted.
pub async fn by_credential(
    conn: &mut Conn,
    id: CredentialId,
    jti: Option<&str>,
) -> Result<Option<CallerCredential>, Error> {
    sql(BY_CREDENTIAL).bind(id).bind(jti).one(conn).await
}

/// The session from which a token was minted.
pub async fn by_session(
    conn: &mut Conn,
    id: SessionId,
    jti: Option<&str>,
) -> Result<Option<SessionCaller>, Error> {
    sql(BY_SESSION).bind(id).bind(jti).one(conn).await
}

impl Record for CallerCredential {
    fn from_row(row: &Row) -> Result<Self, Bug> {
        Ok(Self {
            credential: Credential::from_row(row)?,
            user: user(row)?,
            is_member: row.column(TABLE, "is_member")?,
            is_revoked: row.column(TABLE, "is_revoked")?,
        })
    }
}

impl Record for SessionCaller {
    fn from_row(row: &Row) -> Result<Self, Bug> {
        Ok(Self {
            session: row.column(TABLE, "id")?,
            rotated_at: row.column(TABLE, "rotated_at")?,
            last_seen_at: row.column(TABLE, "last_seen_at")?,
            expires_at: row.column(TABLE, "expires_at")?,
            permissions: row.column(TABLE, "permissions")?,
            resources: row.column(TABLE, "resources")?,
            user: user(row)?,
            is_revoked: row.column(TABLE, "is_revoked")?,
        })
    }
}

fn user(row: &Row) -> Result<User, Bug> {
    Ok(User {
        id: row.column(TABLE, "user_id")?,
        email: row.column(TABLE, "user_email")?,
        name: row.column(TABLE, "user_name")?,
        password_hash: row.column(TABLE, "user_password_hash")?,
        status: row.column(TABLE, "user_status")?,
        role: row.column(TABLE, "user_role")?,
        email_verified: row.column(TABLE, "user_email_verified")?,
        totp_secret: row.column(TABLE, "user_totp_secret")?,
        totp_confirmed_at: row.column(TABLE, "user_totp_confirmed_at")?,
        created_at: row.column(TABLE, "user_created_at")?,
        updated_at: row.column(TABLE, "user_updated_at")?,
    })
}

/// Table name in errors.
const TABLE: &str = "callers";
