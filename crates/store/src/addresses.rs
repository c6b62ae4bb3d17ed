//! Reserved TCP ports of projects.

use jiff::Timestamp;
use types::id::{AddressId, ProjectId};

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
        WHERE project_id = $1 ORDER BY id";
    // The lowest free port of a range: the first itself, or one after a port that is taken.
    FREE = "SELECT CAST($2 AS BIGINT) AS n WHERE NOT EXISTS \
        (SELECT 1 FROM addresses WHERE cluster_domain = $1 AND port = $2) \
        UNION ALL SELECT MIN(a.port) + 1 AS n FROM addresses a WHERE a.cluster_domain = $1 \
        AND a.port >= $2 AND a.port < $3 AND NOT EXISTS (SELECT 1 FROM addresses b \
        WHERE b.cluster_domain = $1 AND b.port = a.port + 1) LIMIT 1";
    DELETE = "DELETE FROM addresses WHERE project_id = $1 AND id = $2";
    DELETE_PORT = "DELETE FROM addresses WHERE project_id = $1 AND port = $2";
    DELETE_ALL = "DELETE FROM addresses WHERE project_id = $1";
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
    Ok(())
}

/// The lowest port of a range that nobody has reserved.
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

/// A project's reserved ports, oldest first.
pub async fn of_project(conn: &mut Conn, project: ProjectId) -> Result<Vec<Address>, Error> {
    sql(OF_PROJECT).bind(project).all(conn).await
}

/// Gives a port back.
pub async fn delete(tx: &mut Tx, project: ProjectId, id: AddressId) -> Result<bool, Error> {
    sql(DELETE).bind(project).bind(id).changed(tx).await
}

/// Gives a port back, by its number.
pub async fn delete_port(tx: &mut Tx, project: ProjectId, port: u16) -> Result<bool, Error> {
    sql(DELETE_PORT)
        .bind(project)
        .bind(i64::from(port))
        .changed(tx)
        .await
}

/// Gives all ports of a project back. Returns how many.
pub async fn delete_all(tx: &mut Tx, project: ProjectId) -> Result<u64, Error> {
    sql(DELETE_ALL).bind(project).execute(tx).await
}
