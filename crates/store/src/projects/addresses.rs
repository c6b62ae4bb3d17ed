//! Reserved TCP ports of projects.
//!
//! A released port is quarantined: its row stays without an owner until clients of the previous
//! owner are unlikely to dial it. Before that, only the project that released it may reserve it
//! again.

use jiff::Timestamp;
use types::id::{AddressId, ProjectId};

use crate::database::changes::Change;
use crate::database::connection::{Conn, Tx};
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// A reserved port.
    pub struct Address from "addresses" {
        /// Id.
        pub id: AddressId,
        /// The project that owns it.
        pub project_id: ProjectId,
        /// The cluster that has the port.
        pub cluster_domain: String,
        /// 1 to 65535.
        pub port: i64,
        /// Time of the reservation.
        pub created_at: Timestamp,
    }
}

statements! {
    INSERT = "INSERT INTO addresses (id, project_id, cluster_domain, port, created_at) VALUES ($1, $2, $3, $4, $5)";
    OF_PROJECT = "SELECT id, project_id, cluster_domain, port, created_at FROM addresses \
        WHERE project_id = $1 AND released_at IS NULL ORDER BY id";
    // The lowest free port of a range: the first port, or one after a port that is reserved or
    // quarantined.
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
/// [`crate::Conflict::PortTaken`]: the caller tries the next one in another transaction.
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

/// The lowest port of a range that is neither reserved nor quarantined.
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

/// Ends the quarantine of the lowest port of a range that this project released. The port is then
/// free, and the caller's transaction can reserve it.
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

/// Releases a port, which starts its quarantine. Returns the port, or `None` if it is not the
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

/// Releases all ports of a project, which starts their quarantine. Returns their number.
pub async fn release_all(tx: &mut Tx, project: ProjectId, now: Timestamp) -> Result<u64, Error> {
    tx.note(Change::project(project), now);
    sql(RELEASE_ALL).bind(project).bind(now).execute(tx).await
}

/// Frees the ports of a cluster whose quarantine started before this time. Returns their number.
pub async fn release_quarantined(
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

/// Deletes at most `limit` ports that were released by this time. Returns their number.
pub async fn purge(tx: &mut Tx, released_by: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(released_by).bind(limit).execute(tx).await
}
