//! The audit log: which actor issued, revoked or changed an object. Rows are never changed, which
//! the database enforces. Rows can be deleted only if they are older than the horizon, which only
//! [`purge`] moves, and only forward.

use jiff::Timestamp;
use types::id::{AuditId, CredentialId, UserId, WorkspaceId};

use crate::database::connection::{Conn, Tx};
use crate::database::page::{Page, Paging};
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// One entry.
    pub struct Entry from "audit" {
        /// Id.
        pub id: AuditId,
        /// The workspace that it concerns; none: a person, or the installation.
        pub workspace_id: Option<WorkspaceId>,
        /// The acting user; none: the platform itself.
        pub actor_user_id: Option<UserId>,
        /// The credential that was used; none: a browser session.
        pub actor_credential_id: Option<CredentialId>,
        /// The action, for example `credential.revoked`.
        pub action: String,
        /// Kind of the object.
        pub target_kind: String,
        /// Id of the object.
        pub target_id: String,
        /// Further details, a JSON object without secrets.
        pub details: serde_json::Value,
        /// Client address.
        pub ip: Option<String>,
        /// Time of the action.
        pub created_at: Timestamp,
    }
}

macro_rules! columns {
    () => {
        "id, workspace_id, actor_user_id, actor_credential_id, action, target_kind, target_id, \
         details, ip, created_at"
    };
}

statements! {
    INSERT = concat!("INSERT INTO audit (", columns!(), ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)");
    COUNT = "SELECT COUNT(*) AS n FROM audit WHERE workspace_id = $1";
    LIST = concat!("SELECT ", columns!(), " FROM audit WHERE workspace_id = $1 ORDER BY id DESC LIMIT $2 OFFSET $3");
    COUNT_OF_USER = "SELECT COUNT(*) AS n FROM audit WHERE actor_user_id = $1";
    LIST_OF_USER = concat!("SELECT ", columns!(), " FROM audit WHERE actor_user_id = $1 \
        ORDER BY id DESC LIMIT $2 OFFSET $3");
    COUNT_OF_ALL = "SELECT COUNT(*) AS n FROM audit";
    MOVE_HORIZON = "UPDATE audit_horizon SET kept_from = $1 WHERE kept_from < $1";
    PURGE = "DELETE FROM audit WHERE id IN \
        (SELECT id FROM audit WHERE created_at < $1 ORDER BY created_at LIMIT $2)";
    LIST_OF_ALL = concat!("SELECT ", columns!(), " FROM audit ORDER BY id DESC LIMIT $1 OFFSET $2");
}

/// Adds an entry, in the transaction of the action itself.
pub async fn insert(tx: &mut Tx, entry: &Entry) -> Result<(), Error> {
    sql(INSERT)
        .bind(entry.id)
        .bind(entry.workspace_id)
        .bind(entry.actor_user_id)
        .bind(entry.actor_credential_id)
        .bind(&entry.action)
        .bind(&entry.target_kind)
        .bind(&entry.target_id)
        .bind(&entry.details)
        .bind(entry.ip.as_ref())
        .bind(entry.created_at)
        .execute(tx)
        .await?;
    Ok(())
}

/// The entries of a workspace, newest first.
pub async fn of_workspace(
    conn: &mut Conn,
    workspace: WorkspaceId,
    paging: Paging,
) -> Result<Page<Entry>, Error> {
    sql(LIST).bind(workspace).page(COUNT, conn, paging).await
}

/// The actions of a person, newest first.
pub async fn of_user(conn: &mut Conn, user: UserId, paging: Paging) -> Result<Page<Entry>, Error> {
    sql(LIST_OF_USER)
        .bind(user)
        .page(COUNT_OF_USER, conn, paging)
        .await
}

/// All entries, newest first, for operators.
pub async fn list_all(conn: &mut Conn, paging: Paging) -> Result<Page<Entry>, Error> {
    sql(LIST_OF_ALL).page(COUNT_OF_ALL, conn, paging).await
}

/// Deletes at most `limit` entries from before `kept_from`, and moves the horizon so that no later
/// call can lower it. Returns their number.
pub async fn purge(tx: &mut Tx, kept_from: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(MOVE_HORIZON).bind(kept_from).execute(tx).await?;
    sql(PURGE).bind(kept_from).bind(limit).execute(tx).await
}
