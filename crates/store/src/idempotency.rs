//! Idempotency keys of project creation (CP-4a): one key, one project.

use jiff::Timestamp;
use types::id::{ProjectId, WorkspaceId};

use crate::database::connection::{Conn, Tx};
use crate::database::row::record;
use crate::database::secret::SecretHash;
use crate::database::sql::{sql, statements};
use crate::error::Error;
use crate::workspaces;

record! {
    /// The result of a key's first use.
    pub struct Key from "idempotency_keys" {
        /// Hash of the request body.
        pub body_hash: SecretHash,
        /// The project that it created.
        pub project_id: ProjectId,
        /// Time of the first use.
        pub created_at: Timestamp,
    }
}

/// Result of claiming a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// The key was free: the caller creates the project in this transaction.
    Claimed,
    /// The key was already used, perhaps a moment ago. Compare the body's hash.
    AlreadyUsed(Key),
}

statements! {
    // On PostgreSQL this waits for a concurrent transaction with the same key, and then finds its
    // row or adds one. SQLite has no concurrent transactions.
    CLAIM = "INSERT INTO idempotency_keys (workspace_id, key, body_hash, project_id, created_at) \
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT (workspace_id, key) DO NOTHING";
    FIND = "SELECT body_hash, project_id, created_at FROM idempotency_keys WHERE workspace_id = $1 AND key = $2";
    PURGE = "DELETE FROM idempotency_keys WHERE (workspace_id, key) IN \
        (SELECT workspace_id, key FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2)";
}

/// The result of a key's first use, if it was used.
pub async fn find(
    conn: &mut Conn,
    workspace: WorkspaceId,
    key: &str,
) -> Result<Option<Key>, Error> {
    sql(FIND).bind(workspace).bind(key).one(conn).await
}

/// Claims a key for a project that this transaction creates. If the transaction is not committed,
/// the key is free again. It takes the workspace's lock first, like every other step of a creation
/// that needs it. The fixed order prevents deadlocks between creations.
pub async fn claim(
    tx: &mut Tx,
    workspace: WorkspaceId,
    key: &str,
    body_hash: SecretHash,
    project: ProjectId,
    now: Timestamp,
) -> Result<Claim, Error> {
    workspaces::lock(tx, workspace).await?;
    let mine = sql(CLAIM)
        .bind(workspace)
        .bind(key)
        .bind(body_hash)
        .bind(project)
        .bind(now)
        .changed(tx)
        .await?;
    if mine {
        return Ok(Claim::Claimed);
    }
    match find(tx, workspace, key).await? {
        Some(key) => Ok(Claim::AlreadyUsed(key)),
        // It was purged between the two statements: the caller retries.
        None => Err(crate::Reason::Busy.into()),
    }
}

/// Deletes at most `limit` keys that were created before this time. Returns their number.
pub async fn purge(tx: &mut Tx, before: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(before).bind(limit).execute(tx).await
}
