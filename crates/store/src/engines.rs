//! State of the engines: their links, their reports, and the number of online clients and tunnels.

use jiff::Timestamp;
use types::id::ProjectId;

use crate::database::connection::{Conn, Tx};
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// An engine that reads the stream of changes.
    pub struct LinkedEngine from "link_engines" {
        /// Id of the link.
        pub id: String,
        /// Its cluster.
        pub cluster_domain: String,
        /// Address from which the engine is linked.
        pub address: String,
        /// Version of its program; `None` for a program that does not report it.
        pub program_version: Option<String>,
        /// Time when the link was established.
        pub linked_at: Timestamp,
        /// Version that was sent to the engine: [`crate::database::changes::Version::version`].
        pub version: i64,
        /// Time when the engine last read from the stream.
        pub seen_at: Timestamp,
    }
}

record! {
    /// A reporting engine and its last batch.
    pub struct Reporter from "link_reporters" {
        /// The cluster.
        pub cluster_domain: String,
        /// Id of the engine's spool.
        pub reporter: String,
        /// Number of the newest batch.
        pub through: i64,
        /// Time of the first batch.
        pub first_at: Timestamp,
        /// Time of the newest batch.
        pub last_at: Timestamp,
    }
}

record! {
    /// Certificates of an engine's own names, as it reported last.
    pub struct EngineCertificates from "link_reporters" {
        /// Id of the engine's spool.
        pub reporter: String,
        /// A list of certificates.
        pub certificates: serde_json::Value,
        /// Time of the report.
        pub certificates_at: Timestamp,
    }
}

record! {
    /// Clients and tunnels that are online in a cluster.
    #[derive(Eq)]
    pub struct Inventory from "link_inventory" {
        /// The cluster.
        pub cluster_domain: String,
        /// Agents.
        pub clients: i64,
        /// Tunnels.
        pub tunnels: i64,
    }
}

statements! {
    // A batch that was already recorded changes nothing. The second of two concurrent batches waits
    // here.
    ARRIVED = "INSERT INTO link_reporters (cluster_domain, reporter, through, first_at, last_at) \
        VALUES ($1, $2, $3, $4, $4) ON CONFLICT (cluster_domain, reporter) DO UPDATE SET \
        through = excluded.through, last_at = excluded.last_at \
        WHERE link_reporters.through < excluded.through";
    THROUGH = "SELECT through AS n FROM link_reporters WHERE cluster_domain = $1 AND reporter = $2";
    REPORTERS = "SELECT cluster_domain, reporter, through, first_at, last_at FROM link_reporters \
        WHERE cluster_domain = $1 ORDER BY last_at DESC, reporter LIMIT $2";
    FORGET_REPORTERS = "DELETE FROM link_reporters WHERE last_at <= $1";
    SET_CERTIFICATES = "UPDATE link_reporters SET certificates = $3, certificates_at = $4 \
        WHERE cluster_domain = $1 AND reporter = $2";
    CERTIFICATES = "SELECT reporter, certificates, certificates_at FROM link_reporters \
        WHERE cluster_domain = $1 AND certificates_at > $2 AND certificates IS NOT NULL \
        ORDER BY certificates_at DESC, reporter LIMIT $3";
    SET_INVENTORY = "INSERT INTO link_inventory (project_id, cluster_domain, clients, tunnels, reported_at) \
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT (project_id) DO UPDATE SET \
        cluster_domain = excluded.cluster_domain, clients = excluded.clients, \
        tunnels = excluded.tunnels, reported_at = excluded.reported_at";
    INVENTORY = "SELECT cluster_domain, CAST(SUM(clients) AS BIGINT) AS clients, \
        CAST(SUM(tunnels) AS BIGINT) AS tunnels FROM link_inventory \
        WHERE cluster_domain = $1 AND reported_at > $2 GROUP BY cluster_domain";
    FORGET_INVENTORY = "DELETE FROM link_inventory WHERE reported_at <= $1";
    SEEN = "INSERT INTO link_engines (id, cluster_domain, address, program_version, linked_at, \
        version, seen_at) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO UPDATE SET \
        version = excluded.version, seen_at = excluded.seen_at";
    GONE = "DELETE FROM link_engines WHERE id = $1";
    LINKED = "SELECT id, cluster_domain, address, program_version, linked_at, version, seen_at \
        FROM link_engines \
        WHERE cluster_domain = $1 AND seen_at > $2 ORDER BY linked_at, id LIMIT $3";
    FORGET_LINKED = "DELETE FROM link_engines WHERE seen_at <= $1";
}

/// Records the arrival of a batch of reports. False if it had already arrived: then the caller must
/// ignore it.
pub async fn record_batch(
    tx: &mut Tx,
    cluster_domain: &str,
    reporter: &str,
    sequence: i64,
    now: Timestamp,
) -> Result<bool, Error> {
    let insert = sql(ARRIVED).bind(cluster_domain).bind(reporter);
    insert.bind(sequence).bind(now).changed(tx).await
}

/// The newest batch of a reporter; 0 before the first.
pub async fn through(conn: &mut Conn, cluster_domain: &str, reporter: &str) -> Result<u64, Error> {
    sql(THROUGH)
        .bind(cluster_domain)
        .bind(reporter)
        .count(conn)
        .await
}

/// The reporters of a cluster, the newest first, at most `limit`.
pub async fn reporters(
    conn: &mut Conn,
    cluster_domain: &str,
    limit: u32,
) -> Result<Vec<Reporter>, Error> {
    let reporters = sql(REPORTERS).bind(cluster_domain).bind(limit);
    reporters.all(conn).await
}

/// Records the certificates of the engine of a reporter, of which a batch was recorded.
pub async fn set_certificates(
    tx: &mut Tx,
    (cluster_domain, reporter): (&str, &str),
    certificates: &serde_json::Value,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(SET_CERTIFICATES)
        .bind(cluster_domain)
        .bind(reporter)
        .bind(certificates)
        .bind(now)
        .changed(tx)
        .await
}

/// The certificates that engines of a cluster reported since this time, the newest first, of at most
/// `limit` reporters.
pub async fn certificates(
    conn: &mut Conn,
    cluster_domain: &str,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<EngineCertificates>, Error> {
    let found = sql(CERTIFICATES).bind(cluster_domain).bind(since);
    found.bind(limit).all(conn).await
}

/// Deletes reporters without a batch since this time.
pub async fn forget_reporters(tx: &mut Tx, since: Timestamp) -> Result<u64, Error> {
    sql(FORGET_REPORTERS).bind(since).execute(tx).await
}

/// Records the clients and tunnels of a project that are online.
pub async fn set_inventory(
    tx: &mut Tx,
    project: ProjectId,
    cluster_domain: &str,
    (clients, tunnels): (u32, u32),
    now: Timestamp,
) -> Result<(), Error> {
    sql(SET_INVENTORY)
        .bind(project)
        .bind(cluster_domain)
        .bind(i64::from(clients))
        .bind(i64::from(tunnels))
        .bind(now)
        .execute(tx)
        .await?;
    Ok(())
}

/// The clients and tunnels of a cluster that are online, from reports since this time.
pub async fn inventory(
    conn: &mut Conn,
    cluster_domain: &str,
    since: Timestamp,
) -> Result<Inventory, Error> {
    let sum = sql(INVENTORY).bind(cluster_domain).bind(since);
    let sum: Option<Inventory> = sum.one(conn).await?;
    Ok(sum.unwrap_or_else(|| Inventory {
        cluster_domain: cluster_domain.to_owned(),
        clients: 0,
        tunnels: 0,
    }))
}

/// Deletes the entries of projects without a report since this time.
pub async fn forget_inventory(tx: &mut Tx, since: Timestamp) -> Result<u64, Error> {
    sql(FORGET_INVENTORY).bind(since).execute(tx).await
}

/// Records that an engine is linked, and the time when it was seen.
pub async fn record_link(tx: &mut Tx, link: &LinkedEngine) -> Result<(), Error> {
    sql(SEEN)
        .bind(&link.id)
        .bind(&link.cluster_domain)
        .bind(&link.address)
        .bind(link.program_version.as_ref())
        .bind(link.linked_at)
        .bind(link.version)
        .bind(link.seen_at)
        .execute(tx)
        .await?;
    Ok(())
}

/// Records the end of a link.
pub async fn remove_link(tx: &mut Tx, id: &str) -> Result<bool, Error> {
    sql(GONE).bind(id).changed(tx).await
}

/// The engines of a cluster that were seen since this time, the longest linked first, at most
/// `limit`.
pub async fn linked(
    conn: &mut Conn,
    cluster_domain: &str,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<LinkedEngine>, Error> {
    let linked = sql(LINKED).bind(cluster_domain).bind(since);
    linked.bind(limit).all(conn).await
}

/// Deletes links without contact since this time: the process ended without a message.
pub async fn forget_linked(tx: &mut Tx, since: Timestamp) -> Result<u64, Error> {
    sql(FORGET_LINKED).bind(since).execute(tx).await
}
