//! Usage of projects by the hour.

use jiff::Timestamp;
use types::id::ProjectId;

use crate::database::connection::{Conn, Tx};
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::database::timeline::Period;
use crate::error::Error;

record! {
    /// Usage of a project's tunnels.
    #[derive(Default)]
    pub struct Usage from "usage" {
        /// Started streams.
        pub streams: i64,
        /// Streams that did not reach their service.
        pub failed_streams: i64,
        /// Bytes towards the services.
        pub upstream_bytes: i64,
        /// Bytes towards the visitors.
        pub downstream_bytes: i64,
    }
}

record! {
    /// Usage of the TURN service by a project.
    #[derive(Default)]
    pub struct TurnUsage from "turn_usage" {
        /// Issued credentials.
        pub credentials: i64,
        /// Allocations.
        pub allocations: i64,
        /// Relayed bytes in both directions.
        pub relayed_bytes: i64,
    }
}

/// Counters of one hour.
#[derive(Clone, Debug, PartialEq)]
pub struct Hour<T> {
    /// Start of the hour.
    pub begins_at: Timestamp,
    /// The counters.
    pub counted: T,
}

impl<T: crate::database::row::Record> crate::database::row::Record for Hour<T> {
    fn from_row(row: &crate::database::row::Row) -> Result<Self, crate::error::Bug> {
        Ok(Self {
            begins_at: row.column("usage", "hour")?,
            counted: T::from_row(row)?,
        })
    }
}

statements! {
    ADD = "INSERT INTO usage (project_id, hour, streams, failed_streams, upstream_bytes, downstream_bytes) \
        VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (project_id, hour) DO UPDATE SET \
        streams = usage.streams + excluded.streams, \
        failed_streams = usage.failed_streams + excluded.failed_streams, \
        upstream_bytes = usage.upstream_bytes + excluded.upstream_bytes, \
        downstream_bytes = usage.downstream_bytes + excluded.downstream_bytes";
    SUM = "SELECT CAST(COALESCE(SUM(streams), 0) AS BIGINT) AS streams, \
        CAST(COALESCE(SUM(failed_streams), 0) AS BIGINT) AS failed_streams, \
        CAST(COALESCE(SUM(upstream_bytes), 0) AS BIGINT) AS upstream_bytes, \
        CAST(COALESCE(SUM(downstream_bytes), 0) AS BIGINT) AS downstream_bytes \
        FROM usage WHERE project_id = $1 AND hour >= $2 AND hour < $3";
    HOURS = "SELECT hour, streams, failed_streams, upstream_bytes, downstream_bytes FROM usage \
        WHERE project_id = $1 AND hour >= $2 AND hour < $3 ORDER BY hour LIMIT $4";
    PURGE = "DELETE FROM usage WHERE (project_id, hour) IN \
        (SELECT project_id, hour FROM usage WHERE hour < $1 ORDER BY hour LIMIT $2)";
    PURGE_TURN = "DELETE FROM turn_usage WHERE (project_id, hour) IN \
        (SELECT project_id, hour FROM turn_usage WHERE hour < $1 ORDER BY hour LIMIT $2)";
    ADD_TURN = "INSERT INTO turn_usage (project_id, hour, credentials, allocations, relayed_bytes) \
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT (project_id, hour) DO UPDATE SET \
        credentials = turn_usage.credentials + excluded.credentials, \
        allocations = turn_usage.allocations + excluded.allocations, \
        relayed_bytes = turn_usage.relayed_bytes + excluded.relayed_bytes";
    SUM_TURN = "SELECT CAST(COALESCE(SUM(credentials), 0) AS BIGINT) AS credentials, \
        CAST(COALESCE(SUM(allocations), 0) AS BIGINT) AS allocations, \
        CAST(COALESCE(SUM(relayed_bytes), 0) AS BIGINT) AS relayed_bytes \
        FROM turn_usage WHERE project_id = $1 AND hour >= $2 AND hour < $3";
    TURN_HOURS = "SELECT hour, credentials, allocations, relayed_bytes FROM turn_usage \
        WHERE project_id = $1 AND hour >= $2 AND hour < $3 ORDER BY hour LIMIT $4";
}

/// Adds to the hour of `at`.
pub async fn add(
    tx: &mut Tx,
    project: ProjectId,
    at: Timestamp,
    usage: &Usage,
) -> Result<(), Error> {
    sql(ADD)
        .bind(project)
        .bind(hour(at))
        .bind(usage.streams)
        .bind(usage.failed_streams)
        .bind(usage.upstream_bytes)
        .bind(usage.downstream_bytes)
        .execute(tx)
        .await?;
    Ok(())
}

/// The sum over the hours that start in a period.
pub async fn sum(conn: &mut Conn, project: ProjectId, period: Period) -> Result<Usage, Error> {
    let (start, end) = bounds(period);
    let sum = sql(SUM).bind(project).bind(start).bind(end).one(conn);
    Ok(sum.await?.unwrap_or_default())
}

/// The non-empty hours of a period, oldest first, at most a month of them.
pub async fn hours(
    conn: &mut Conn,
    project: ProjectId,
    period: Period,
) -> Result<Vec<Hour<Usage>>, Error> {
    let (start, end) = bounds(period);
    let hours = sql(HOURS).bind(project).bind(start).bind(end);
    hours.bind(MAX_HOURS).all(conn).await
}

/// Adds to the hour of `at`.
pub async fn add_turn(
    tx: &mut Tx,
    project: ProjectId,
    at: Timestamp,
    usage: &TurnUsage,
) -> Result<(), Error> {
    sql(ADD_TURN)
        .bind(project)
        .bind(hour(at))
        .bind(usage.credentials)
        .bind(usage.allocations)
        .bind(usage.relayed_bytes)
        .execute(tx)
        .await?;
    Ok(())
}

/// The sum over the hours that start in a period.
pub async fn sum_turn(
    conn: &mut Conn,
    project: ProjectId,
    period: Period,
) -> Result<TurnUsage, Error> {
    let (start, end) = bounds(period);
    let sum = sql(SUM_TURN).bind(project).bind(start).bind(end).one(conn);
    Ok(sum.await?.unwrap_or_default())
}

/// The non-empty hours of a period, oldest first, at most a month of them.
pub async fn turn_hours(
    conn: &mut Conn,
    project: ProjectId,
    period: Period,
) -> Result<Vec<Hour<TurnUsage>>, Error> {
    let (start, end) = bounds(period);
    let hours = sql(TURN_HOURS).bind(project).bind(start).bind(end);
    hours.bind(MAX_HOURS).all(conn).await
}

/// Start of the hour, in microseconds.
fn hour(at: Timestamp) -> i64 {
    let micros = at.as_microsecond();
    micros - micros.rem_euclid(HOUR_MICROS)
}

fn bounds(period: Period) -> (i64, i64) {
    let start = period.start.map_or(i64::MIN, Timestamp::as_microsecond);
    let end = period.end.map_or(i64::MAX, Timestamp::as_microsecond);
    (start, end)
}

const HOUR_MICROS: i64 = 3_600_000_000;
/// Hours of 31 days: the longest timeline is 30 days.
const MAX_HOURS: u32 = 744;

/// Deletes at most `limit` hours of each kind that started before this time. Returns the larger
/// number of the two kinds.
pub async fn purge(tx: &mut Tx, kept_from: Timestamp, limit: u32) -> Result<u64, Error> {
    let streams = sql(PURGE).bind(kept_from).bind(limit).execute(tx).await?;
    let turn = sql(PURGE_TURN)
        .bind(kept_from)
        .bind(limit)
        .execute(tx)
        .await?;
    Ok(streams.max(turn))
}
