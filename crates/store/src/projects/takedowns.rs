//! Host names of tunnels that an operator has taken down.
//!
//! A takedown belongs to the name, so it also counts for a project that gets the name as a custom
//! domain later.

use jiff::Timestamp;
use types::id::{ProjectId, UserId};

use crate::database::changes::Change;
use crate::database::connection::{Conn, Tx};
use crate::database::lock::Lock;
use crate::database::page::{Page, Paging};
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// A host name that an operator has taken down.
    pub struct Takedown from "takedowns" {
        /// The name, in lower case.
        pub hostname: String,
        /// The project that had the name at that time.
        pub project_id: ProjectId,
        /// Reason, for the owners of the project.
        pub reason: String,
        /// The operator.
        pub created_by: UserId,
        /// Time of the takedown.
        pub created_at: Timestamp,
    }
}

macro_rules! columns {
    () => {
        "t.hostname, t.project_id, t.reason, t.created_by, t.created_at"
    };
}

statements! {
    INSERT = "INSERT INTO takedowns (hostname, wildcard, project_id, reason, created_by, created_at) \
        VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (hostname) DO NOTHING";
    BY_HOSTNAME = concat!("SELECT ", columns!(), " FROM takedowns t WHERE t.hostname = $1");
    DELETE = "DELETE FROM takedowns WHERE hostname = $1 \
        RETURNING hostname, project_id, reason, created_by, created_at";
    // Each project can add any name as a pending domain, and must not see the reason for another one.
    OF_PROJECT = concat!("SELECT ", columns!(), " FROM takedowns t WHERE t.project_id = $1 \
        UNION SELECT ", columns!(), " FROM takedowns t JOIN domains d ON d.hostname = t.hostname \
        WHERE d.state <> 'pending' AND d.project_id = $1 \
        UNION SELECT ", columns!(), " FROM takedowns t JOIN domains d ON d.hostname = t.wildcard \
        WHERE d.state <> 'pending' AND d.project_id = $1 ORDER BY 1 LIMIT $2");
    COUNT_OF_PROJECT = "SELECT COUNT(*) AS n FROM takedowns WHERE project_id = $1";
    LIST = concat!("SELECT ", columns!(), " FROM takedowns t ORDER BY t.hostname LIMIT $1 OFFSET $2");
    COUNT = "SELECT COUNT(*) AS n FROM takedowns";
    // The condition on the state is that of the index. A pending domain is not served, and engines
    // get its project when it is.
    HOLDERS = "SELECT project_id AS id FROM domains WHERE hostname = $1 AND state <> 'pending' \
        UNION SELECT project_id AS id FROM domains WHERE hostname = $2 AND state <> 'pending'";
}

/// Takes down a host name. False if it is taken down already.
pub async fn insert(tx: &mut Tx, takedown: &Takedown) -> Result<bool, Error> {
    Lock::Hostnames.take(tx).await?;
    let now = takedown.created_at;
    note(tx, takedown, now).await?;
    sql(INSERT)
        .bind(&takedown.hostname)
        .bind(wildcard_of(&takedown.hostname))
        .bind(takedown.project_id)
        .bind(&takedown.reason)
        .bind(takedown.created_by)
        .bind(now)
        .changed(tx)
        .await
}

/// Restores a host name. `None` if it is not taken down.
pub async fn delete(
    tx: &mut Tx,
    hostname: &str,
    now: Timestamp,
) -> Result<Option<Takedown>, Error> {
    Lock::Hostnames.take(tx).await?;
    let deleted: Option<Takedown> = sql(DELETE).bind(hostname).one(tx).await?;
    if let Some(takedown) = &deleted {
        note(tx, takedown, now).await?;
    }
    Ok(deleted)
}

/// Notes the change of the project that had the name, and of those that have it now. The caller has
/// [`Lock::Hostnames`], so that no other project gets the name before the commit.
async fn note(tx: &mut Tx, takedown: &Takedown, now: Timestamp) -> Result<(), Error> {
    let mut projects: Vec<ProjectId> = sql(HOLDERS)
        .bind(&takedown.hostname)
        .bind(wildcard_of(&takedown.hostname))
        .all(tx)
        .await?;
    projects.push(takedown.project_id);
    projects.sort_unstable();
    projects.dedup();
    for project in projects {
        tx.note(Change::project(project), now);
    }
    Ok(())
}

/// The takedown of a host name.
pub async fn by_hostname(conn: &mut Conn, hostname: &str) -> Result<Option<Takedown>, Error> {
    sql(BY_HOSTNAME).bind(hostname).one(conn).await
}

/// The taken down names that a project has or had, at most `limit`.
pub async fn of_project(
    conn: &mut Conn,
    project: ProjectId,
    limit: u32,
) -> Result<Vec<Takedown>, Error> {
    sql(OF_PROJECT).bind(project).bind(limit).all(conn).await
}

/// Number of names of a project that were taken down.
pub async fn count_of_project(conn: &mut Conn, project: ProjectId) -> Result<u64, Error> {
    sql(COUNT_OF_PROJECT).bind(project).count(conn).await
}

/// One page of all taken down names, for operators.
pub async fn list_all(conn: &mut Conn, paging: Paging) -> Result<Page<Takedown>, Error> {
    sql(LIST).page(COUNT, conn, paging).await
}

/// The wildcard domain that includes a host name.
fn wildcard_of(hostname: &str) -> String {
    let parent = hostname.split_once('.').map_or("", |(_, parent)| parent);
    format!("*.{parent}")
}
