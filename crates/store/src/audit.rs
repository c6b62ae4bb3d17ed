//! Who issued, revoked and changed what. Rows are added and never changed; the database refuses.
//! It lets go of what is older than the horizon, which only [`purge`] moves, and only on.

use jiff::Timestamp;
use types::id::{AuditId, CredentialId, UserId, WorkspaceId};

use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::page::{Page, Paging};
use crate::row::record;
use crate::sql::{sql, statements};

record! {
    /// One entry.
    pub struct Entry from "audit" {
        /// Id.
        pub id: AuditId,
        /// The workspace that it concerns; none: a person, or the installation.
        pub workspace_id: Option<WorkspaceId>,
        /// Who; none: the platform itself.
        pub actor_user_id: Option<UserId>,
        /// With which credential; none: in a browser.
        pub actor_credential_id: Option<CredentialId>,
        /// What was done, for example `credential.revoked`.
        pub action: String,
        /// To what kind of thing.
        pub target_kind: String,
        /// To which.
        pub target_id: String,
        /// More, a JSON object without secrets.
        pub details: serde_json::Value,
        /// From which address.
        pub ip: Option<String>,
        /// When.
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

/// Adds an entry, in the transaction that does what it tells of.
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
    let total = sql(COUNT).bind(workspace).count(conn).await?;
    let items = sql(LIST)
        .bind(workspace)
        .bind(paging.limit())
        .bind(paging.offset())
        .all(conn)
        .await?;
    Ok(Page { items, total })
}

/// What a person did, newest first.
pub async fn of_user(conn: &mut Conn, user: UserId, paging: Paging) -> Result<Page<Entry>, Error> {
    let total = sql(COUNT_OF_USER).bind(user).count(conn).await?;
    let items = sql(LIST_OF_USER)
        .bind(user)
        .bind(paging.limit())
        .bind(paging.offset())
        .all(conn)
        .await?;
    Ok(Page { items, total })
}

/// All entries, newest first, for operators.
pub async fn list_all(conn: &mut Conn, paging: Paging) -> Result<Page<Entry>, Error> {
    let total = sql(COUNT_OF_ALL).count(conn).await?;
    let items = sql(LIST_OF_ALL)
        .bind(paging.limit())
        .bind(paging.offset())
        .all(conn)
        .await?;
    Ok(Page { items, total })
}

/// Forgets at most `limit` entries from before `kept_from`, and lets no later call keep less.
/// Returns how many.
pub async fn purge(tx: &mut Tx, kept_from: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(MOVE_HORIZON).bind(kept_from).execute(tx).await?;
    sql(PURGE).bind(kept_from).bind(limit).execute(tx).await
}
