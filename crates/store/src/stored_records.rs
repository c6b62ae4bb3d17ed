//! Counters of the logs and events of each project, to enforce their limit.
//!
//! A transaction that removes rows of a project locks its counter first, and several counters in
//! the order of their projects. This prevents deadlocks.

use std::collections::BTreeMap;

use jiff::Timestamp;
use types::id::ProjectId;

use crate::database::connection::Tx;
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// Rows of one project.
    pub struct StoredRecords from "stored_records" {
        /// Summaries of streams.
        pub logs: i64,
        /// Events.
        pub events: i64,
    }
}

record! {
    /// An expired row.
    pub struct ExpiredRecord from "records" {
        /// Id.
        pub id: String,
        /// Its project.
        pub project_id: ProjectId,
    }
}

/// A table of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Logs,
    Events,
}

statements! {
    COUNT = "INSERT INTO stored_records (project_id, logs, events) VALUES ($1, $2, $3) \
        ON CONFLICT (project_id) DO UPDATE SET logs = stored_records.logs + excluded.logs, \
        events = stored_records.events + excluded.events RETURNING logs, events";
    // The counter never goes below zero.
    SUBTRACT = "UPDATE stored_records SET logs = CASE WHEN logs > $2 THEN logs - $2 ELSE 0 END, \
        events = CASE WHEN events > $3 THEN events - $3 ELSE 0 END WHERE project_id = $1";
    OLDEST_LOGS = "DELETE FROM logs WHERE id IN \
        (SELECT id FROM logs WHERE project_id = $1 ORDER BY created_at, id LIMIT $2)";
    OLDEST_EVENTS = "DELETE FROM events WHERE id IN \
        (SELECT id FROM events WHERE project_id = $1 ORDER BY created_at, id LIMIT $2)";
    DUE_LOGS = "SELECT id, project_id FROM logs WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2";
    DUE_EVENTS = "SELECT id, project_id FROM events WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2";
    DELETE_LOGS = "DELETE FROM logs WHERE id IN_LIST($1)";
    DELETE_EVENTS = "DELETE FROM events WHERE id IN_LIST($1)";
}

/// Counts rows that were added to a project, and removes its oldest rows above the limit, at most
/// `limit` of each kind. Returns the number of removed rows.
pub async fn count(
    tx: &mut Tx,
    project: ProjectId,
    added: &StoredRecords,
    most: &StoredRecords,
    limit: u32,
) -> Result<u64, Error> {
    let stored: Option<StoredRecords> = sql(COUNT)
        .bind(project)
        .bind(added.logs)
        .bind(added.events)
        .one(tx)
        .await?;
    let Some(stored) = stored else { return Ok(0) };
    let mut removed = 0;
    for (table, excess) in [
        (Table::Logs, stored.logs - most.logs),
        (Table::Events, stored.events - most.events),
    ] {
        if excess > 0 {
            let oldest = match table {
                Table::Logs => OLDEST_LOGS,
                Table::Events => OLDEST_EVENTS,
            };
            let excess = excess.min(i64::from(limit));
            let rows = sql(oldest).bind(project).bind(excess).execute(tx).await?;
            subtract(tx, project, table, rows).await?;
            removed += rows;
        }
    }
    Ok(removed)
}

/// Removes at most `limit` expired rows. Returns their number.
pub(crate) async fn purge(
    tx: &mut Tx,
    table: Table,
    now: Timestamp,
    limit: u32,
) -> Result<u64, Error> {
    let (due, delete) = match table {
        Table::Logs => (DUE_LOGS, DELETE_LOGS),
        Table::Events => (DUE_EVENTS, DELETE_EVENTS),
    };
    let due: Vec<ExpiredRecord> = sql(due).bind(now).bind(limit).all(tx).await?;
    let mut projects: BTreeMap<ProjectId, Vec<String>> = BTreeMap::new();
    for row in due {
        projects.entry(row.project_id).or_default().push(row.id);
    }
    let mut removed = 0;
    for (project, ids) in projects {
        // Locks the counter first, even if it does not change.
        subtract(tx, project, table, 0).await?;
        let rows = sql(delete).bind(ids).execute(tx).await?;
        subtract(tx, project, table, rows).await?;
        removed += rows;
    }
    Ok(removed)
}

async fn subtract(tx: &mut Tx, project: ProjectId, table: Table, rows: u64) -> Result<(), Error> {
    let rows = i64::try_from(rows).unwrap_or(i64::MAX);
    let (logs, events) = match table {
        Table::Logs => (rows, 0),
        Table::Events => (0, rows),
    };
    sql(SUBTRACT)
        .bind(project)
        .bind(logs)
        .bind(events)
        .execute(tx)
        .await?;
    Ok(())
}
