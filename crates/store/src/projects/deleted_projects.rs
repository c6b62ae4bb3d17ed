//! Deleted projects until they are purged.

use jiff::Timestamp;
use types::id::ProjectId;

use crate::database::connection::Tx;
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// A deleted project without any references.
    pub struct DeletedProject from "projects" {
        /// Id.
        pub id: ProjectId,
        /// Its endpoint.
        pub endpoint: String,
    }
}

statements! {
    // Every reference to a project except its terminal servers has its own retention time.
    PURGEABLE = "SELECT id, endpoint FROM projects p WHERE deleted_at <= $1 \
        AND NOT EXISTS (SELECT 1 FROM webhooks WHERE project_id = p.id) \
        AND NOT EXISTS (SELECT 1 FROM addresses WHERE project_id = p.id) \
        AND NOT EXISTS (SELECT 1 FROM logs WHERE project_id = p.id) \
        AND NOT EXISTS (SELECT 1 FROM events WHERE project_id = p.id) ORDER BY deleted_at LIMIT $2";
    RETIRE = "INSERT INTO retired_endpoints (endpoint) VALUES ($1) ON CONFLICT (endpoint) DO NOTHING";
    PURGE_SERVERS = "DELETE FROM webtty_servers WHERE project_id = $1";
    PURGE_RECORDS = "DELETE FROM stored_records WHERE project_id = $1";
    PURGE = "DELETE FROM projects WHERE id = $1";
}

/// Deletes at most `limit` projects that were deleted by then, with their terminal servers, once
/// their records, webhooks and ports are gone. Their endpoints are never assigned again. Returns
/// their number.
pub async fn purge(tx: &mut Tx, deleted_by: Timestamp, limit: u32) -> Result<u64, Error> {
    let due: Vec<DeletedProject> = sql(PURGEABLE).bind(deleted_by).bind(limit).all(tx).await?;
    let count = u64::try_from(due.len()).unwrap_or(u64::MAX);
    for project in due {
        sql(RETIRE).bind(&project.endpoint).execute(tx).await?;
        sql(PURGE_SERVERS).bind(project.id).execute(tx).await?;
        sql(PURGE_RECORDS).bind(project.id).execute(tx).await?;
        sql(PURGE).bind(project.id).execute(tx).await?;
    }
    Ok(count)
}
