//! Reserved TCP ports of projects.
//!
//! A port that was given back rests: its row stays, without being anybody's address, until nobody
//! is likely to dial it for what was there. Only the project that had it may have it again before.

use jiff::Timestamp;
use types::id::{AddressId, ProjectId};

use crate::changes::Change;
use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::row::record;
use crate::sql::{sql, statements};

record! {
    /// A reserved port.
    pub struct Address from "addresses" {
        /// Id.
        pub id: AddressId,
        /// Whose it is.
        pub project_id: ProjectId,
        /// The cluster on which the port is.
        pub cluster_domain: String,
        /// 1 to 65535.
        pub port: i64,
        /// When it was reserved.
        pub created_at: Timestamp,
    }
}

statements! {
    INSERT = "INSERT INTO addresses (id, project_id, cluster_domain, port, created_at) VALUES ($1, $2, $3, $4, $5)";
    OF_PROJECT = "SELECT id, project_id, cluster_domain, port, created_at FROM addresses \
        WHERE project_id = $1 AND released_at IS NULL ORDER BY id";
    // The lowest free port of a range: the first itself, or one after a port that is taken or rests.
    FREE = "SELECT CAST($2 AS BIGINT) AS n WHERE NOT EXISTS \
        (SELECT 1 FROM addresses WHERE cluster_domain = $1 AND port = $2) \
        UNION ALL SELECT MIN(a.port) + 1 AS n FROM addresses a WHERE a.cluster_domain = $1 \
        AND a.port >= $2 AND a.port < $3 AND NOT EXISTS (SELECT 1 FROM addresses b \
        WHERE b.cluster_domain = $1 AND b.port = a.port + 1) LIMIT 1";
    TAKE_BACK = "DELETE FROM addresses WHERE id = (SELECT id FROM addresses WHERE cluster_domain = $1 \
        AND project_id = $2 AND released_at IS NOT NULL AND port BETWEEN $3 AND $4 ORDER BY port LIMIT 1) \
        RETURNING port AS n";
    RELEASE = "UPDATE addresses SET released_at = $3 WHERE project_id = $1 AND id = $2 AND released_at IS NULL \
        RETURNING port AS n";
    RELEASE_ALL = "UPDATE addresses SET released_at = $2 WHERE project_id = $1 AND released_at IS NULL";
    RESTED = "DELETE FROM addresses WHERE cluster_domain = $1 AND released_at <= $2";
    PURGE = "DELETE FROM addresses WHERE id IN \
        (SELECT id FROM addresses WHERE released_at <= $1 ORDER BY released_at LIMIT $2)";
}

/// Reserves a port.
///
/// # Errors
/// [`crate::Conflict::PortTaken`]: the caller takes the next one in another transaction.
pub async fn insert(tx: &mut Tx, address: &Address) -> Result<(), Error> {
    sql(INSERT)
        .bind(address.id)
        .bind(address.project_id)
        .bind(&address.cluster_domain)
        .bind(address.port)
        .bind(address.created_at)
        .execute(tx)
        .await?;
    tx.note(Change::project(address.project_id), address.created_at);
    Ok(())
}

/// The lowest port of a range that nobody has and that does not rest.
pub async fn lowest_free(
    conn: &mut Conn,
    cluster_domain: &str,
    first: u16,
    last: u16,
) -> Result<Option<u16>, Error> {
    let free: Option<Option<i64>> = sql(FREE)
        .bind(cluster_domain)
        .bind(i64::from(first))
        .bind(i64::from(last))
        .one(conn)
        .await?;
    Ok(free.flatten().and_then(|port| u16::try_from(port).ok()))
}

/// Ends the rest of the lowest port of a range that this project gave back. It is free then, for
/// the caller's own transaction to reserve.
pub async fn take_back(
    tx: &mut Tx,
    cluster_domain: &str,
    project: ProjectId,
    first: u16,
    last: u16,
) -> Result<Option<u16>, Error> {
    let port: Option<i64> = sql(TAKE_BACK)
        .bind(cluster_domain)
        .bind(project)
        .bind(i64::from(first))
        .bind(i64::from(last))
        .one(tx)
        .await?;
    Ok(port.and_then(|port| u16::try_from(port).ok()))
}

/// A project's reserved ports, oldest first.
pub async fn of_project(conn: &mut Conn, project: ProjectId) -> Result<Vec<Address>, Error> {
    sql(OF_PROJECT).bind(project).all(conn).await
}

/// Gives a port back; it rests from now on. Returns the port, or `None` where it is not the
/// project's.
pub async fn release(
    tx: &mut Tx,
    project: ProjectId,
    id: AddressId,
    now: Timestamp,
) -> Result<Option<u16>, Error> {
    tx.note(Change::project(project), now);
    let port: Option<i64> = sql(RELEASE)
        .bind(project)
        .bind(id)
        .bind(now)
        .one(tx)
        .await?;
    Ok(port.and_then(|port| u16::try_from(port).ok()))
}

/// Gives all ports of a project back; they rest from now on. Returns how many.
pub async fn release_all(tx: &mut Tx, project: ProjectId, now: Timestamp) -> Result<u64, Error> {
    tx.note(Change::project(project), now);
    sql(RELEASE_ALL).bind(project).bind(now).execute(tx).await
}

/// Frees the ports of a cluster that have rested since then. Returns how many.
pub async fn free_rested(
    tx: &mut Tx,
    cluster_domain: &str,
    released_by: Timestamp,
) -> Result<u64, Error> {
    sql(RESTED)
        .bind(cluster_domain)
        .bind(released_by)
        .execute(tx)
        .await
}

/// Forgets at most `limit` ports that were given back by this time. Returns how many.
pub async fn purge(tx: &mut Tx, released_by: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(released_by).bind(limit).execute(tx).await
}
