//! Visits of projects and of their tunnels, by the minute and by the hour.
//!
//! Each visit is counted in both steps. Durations are counted in fixed buckets, so that counts of
//! several intervals, tunnels or batches add up. The number of names in each interval is limited;
//! visits of further tunnels count as [`REST`].

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use types::id::ProjectId;

use crate::database::connection::{Conn, Tx};
use crate::database::row::{Record, Row, record};
use crate::database::sql::{Query, sql, statements};
use crate::database::timeline::Period;
use crate::error::{Bug, Error};

/// Length of the intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrafficStep {
    /// Minutes.
    Minute,
    /// Hours.
    Hour,
}

/// Counts of one interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Visits.
    pub requests: i64,
    /// Visits that failed, and responses with a status of 500 or more.
    pub errors: i64,
    /// Visits that the edge refused.
    pub denied: i64,
    /// Bytes towards the services.
    pub upstream_bytes: i64,
    /// Bytes towards the visitors.
    pub downstream_bytes: i64,
    /// Responses by their duration.
    pub durations: [i64; BUCKETS],
}

/// Counts of a tunnel or a project in one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Start of the interval.
    pub starts_at: Timestamp,
    /// Name of the tunnel, [`REST`], or empty for the whole project.
    pub tunnel: String,
    /// The counts.
    pub traffic: Traffic,
}

record! {
    /// A name in an interval.
    pub struct CountedName from "traffic" {
        /// Name of the tunnel, [`REST`], or empty for the whole project.
        pub tunnel: String,
    }
}

/// The columns of a [`Point`].
macro_rules! columns {
    () => {
        "starts_at, tunnel, requests, errors, denied, upstream_bytes, downstream_bytes, \
        d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, d12, d13, d14, d15"
    };
}

statements! {
    ADD = "INSERT INTO traffic (project_id, step, starts_at, tunnel, requests, errors, denied, \
        upstream_bytes, downstream_bytes, \
        d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, d12, d13, d14, d15) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, \
        $20, $21, $22, $23, $24, $25) \
        ON CONFLICT (project_id, step, starts_at, tunnel) DO UPDATE SET \
        requests = traffic.requests + excluded.requests, \
        errors = traffic.errors + excluded.errors, denied = traffic.denied + excluded.denied, \
        upstream_bytes = traffic.upstream_bytes + excluded.upstream_bytes, \
        downstream_bytes = traffic.downstream_bytes + excluded.downstream_bytes, \
        d0 = traffic.d0 + excluded.d0, d1 = traffic.d1 + excluded.d1, \
        d2 = traffic.d2 + excluded.d2, d3 = traffic.d3 + excluded.d3, \
        d4 = traffic.d4 + excluded.d4, d5 = traffic.d5 + excluded.d5, \
        d6 = traffic.d6 + excluded.d6, d7 = traffic.d7 + excluded.d7, \
        d8 = traffic.d8 + excluded.d8, d9 = traffic.d9 + excluded.d9, \
        d10 = traffic.d10 + excluded.d10, d11 = traffic.d11 + excluded.d11, \
        d12 = traffic.d12 + excluded.d12, d13 = traffic.d13 + excluded.d13, \
        d14 = traffic.d14 + excluded.d14, d15 = traffic.d15 + excluded.d15";
    NAMES = "SELECT tunnel FROM traffic WHERE project_id = $1 AND step = $2 AND starts_at = $3 LIMIT $4";
    SERIES = concat!("SELECT ", columns!(), " FROM traffic WHERE project_id = $1 AND step = $2 \
        AND tunnel = $3 AND starts_at >= $4 AND starts_at < $5 ORDER BY starts_at LIMIT $6");
    TUNNELS = concat!("SELECT ", columns!(), " FROM traffic WHERE project_id = $1 AND step = $2 \
        AND tunnel <> '' AND starts_at >= $3 AND starts_at < $4 ORDER BY starts_at, tunnel LIMIT $5");
    PURGE = "DELETE FROM traffic WHERE (project_id, step, starts_at, tunnel) IN \
        (SELECT project_id, step, starts_at, tunnel FROM traffic \
        WHERE step = $1 AND starts_at < $2 ORDER BY starts_at LIMIT $3)";
}

/// Adds visits to an interval, by the names of their tunnels. Visits without a name have the name
/// [`REST`].
pub async fn add(
    tx: &mut Tx,
    project: ProjectId,
    (step, starts_at): (TrafficStep, Timestamp),
    tunnels: &BTreeMap<String, Traffic>,
) -> Result<(), Error> {
    let names: Vec<CountedName> = sql(NAMES)
        .bind(project)
        .bind(step.seconds())
        .bind(starts_at)
        .bind(2 * MAX_NAMES)
        .all(tx)
        .await?;
    let known: BTreeSet<_> = names.into_iter().map(|name| name.tunnel).collect();
    // In the order of names, so that two concurrent batches lock rows in the same order.
    for (name, traffic) in limited(&known, tunnels) {
        let row = sql(ADD)
            .bind(project)
            .bind(step.seconds())
            .bind(starts_at)
            .bind(name)
            .bind(traffic.requests)
            .bind(traffic.errors)
            .bind(traffic.denied)
            .bind(traffic.upstream_bytes)
            .bind(traffic.downstream_bytes);
        let durations = traffic.durations.into_iter();
        let row = durations.fold(row, Query::bind);
        row.execute(tx).await?;
    }
    Ok(())
}

/// The rows for these visits: the sum, the known names, as many new names as fit, and the rest.
fn limited(
    known: &BTreeSet<String>,
    tunnels: &BTreeMap<String, Traffic>,
) -> BTreeMap<String, Traffic> {
    let is_special = |name: &&String| name.is_empty() || name.as_str() == REST;
    let held = known.iter().filter(|name| !is_special(name)).count();
    let mut free = usize::try_from(MAX_NAMES)
        .unwrap_or_default()
        .saturating_sub(held);
    let mut rows: BTreeMap<String, Traffic> = BTreeMap::new();
    for (name, traffic) in tunnels {
        let is_new = name != REST && !known.contains(name);
        let key = if is_new && free == 0 {
            REST
        } else {
            name.as_str()
        };
        if is_new {
            free = free.saturating_sub(1);
        }
        rows.entry(key.to_owned()).or_default().merge(traffic);
        rows.entry(String::new()).or_default().merge(traffic);
    }
    rows
}

/// The non-empty intervals of a period, oldest first: of the whole project if `tunnel` is empty, or
/// of a tunnel.
pub async fn series(
    conn: &mut Conn,
    project: ProjectId,
    (step, period): (TrafficStep, Period),
    tunnel: &str,
    limit: u32,
) -> Result<Vec<Point>, Error> {
    let (start, end) = bounds(period);
    let points = sql(SERIES)
        .bind(project)
        .bind(step.seconds())
        .bind(tunnel)
        .bind(start)
        .bind(end);
    points.bind(limit).all(conn).await
}

/// The non-empty intervals of all tunnels and of the rest in a period, oldest first.
pub async fn tunnels(
    conn: &mut Conn,
    project: ProjectId,
    (step, period): (TrafficStep, Period),
    limit: u32,
) -> Result<Vec<Point>, Error> {
    let (start, end) = bounds(period);
    let points = sql(TUNNELS)
        .bind(project)
        .bind(step.seconds())
        .bind(start)
        .bind(end);
    points.bind(limit).all(conn).await
}

/// Deletes at most `limit` rows of intervals that started before this time. Returns their number.
pub async fn purge(
    tx: &mut Tx,
    step: TrafficStep,
    kept_from: Timestamp,
    limit: u32,
) -> Result<u64, Error> {
    let old = sql(PURGE).bind(step.seconds()).bind(kept_from);
    old.bind(limit).execute(tx).await
}

impl TrafficStep {
    /// Length of an interval in seconds.
    pub const fn seconds(self) -> i64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }

    /// Start of the interval that contains a time.
    pub fn start_of(self, at: Timestamp) -> Timestamp {
        let seconds = at.as_second();
        let start = seconds - seconds.rem_euclid(self.seconds());
        Timestamp::from_second(start).unwrap_or(at)
    }
}

impl Traffic {
    /// Adds other counts.
    pub fn merge(&mut self, other: &Self) {
        let counts = [
            (&mut self.requests, other.requests),
            (&mut self.errors, other.errors),
            (&mut self.denied, other.denied),
            (&mut self.upstream_bytes, other.upstream_bytes),
            (&mut self.downstream_bytes, other.downstream_bytes),
        ];
        let durations = self.durations.iter_mut().zip(other.durations);
        for (sum, more) in counts.into_iter().chain(durations) {
            *sum = sum.saturating_add(more);
        }
    }
}

impl Record for Point {
    fn from_row(row: &Row) -> Result<Self, Bug> {
        let mut durations = [0; BUCKETS];
        for (count, column) in durations.iter_mut().zip(DURATIONS) {
            *count = row.column(TABLE, column)?;
        }
        Ok(Self {
            starts_at: row.column(TABLE, "starts_at")?,
            tunnel: row.column(TABLE, "tunnel")?,
            traffic: Traffic {
                requests: row.column(TABLE, "requests")?,
                errors: row.column(TABLE, "errors")?,
                denied: row.column(TABLE, "denied")?,
                upstream_bytes: row.column(TABLE, "upstream_bytes")?,
                downstream_bytes: row.column(TABLE, "downstream_bytes")?,
                durations,
            },
        })
    }
}

fn bounds(period: Period) -> (Timestamp, Timestamp) {
    let start = period.start.unwrap_or(Timestamp::MIN);
    (start, period.end.unwrap_or(Timestamp::MAX))
}

/// Number of buckets of durations.
pub const BUCKETS: usize = 16;
/// The name of visits without a tunnel, and of tunnels beyond the limit. No tunnel can have it.
pub const REST: &str = "*";
/// Names of tunnels in one interval. A project has at most 1,440 minutes and 744 hours of rows with
/// some 250 bytes each, which is 60 MB.
pub const MAX_NAMES: u32 = 100;

const TABLE: &str = "traffic";
const DURATIONS: [&str; BUCKETS] = [
    "d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9", "d10", "d11", "d12", "d13", "d14",
    "d15",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn visits(requests: i64) -> Traffic {
        let mut traffic = Traffic {
            requests,
            ..Traffic::default()
        };
        traffic.durations[3] = requests;
        traffic
    }

    #[test]
    fn an_interval_has_a_limited_number_of_names() {
        let most = usize::try_from(MAX_NAMES).unwrap();
        let mut known: BTreeSet<String> = (0..most - 1).map(|n| format!("t{n}")).collect();
        known.extend([String::new(), REST.to_owned()]);
        let tunnels = [("a", 1), ("b", 2), ("t5", 4), (REST, 8)];
        let tunnels = tunnels.map(|(name, count)| (name.to_owned(), visits(count)));
        let rows = limited(&known, &tunnels.into());
        let rows: Vec<_> = rows
            .iter()
            .map(|(name, traffic)| (name.as_str(), traffic.requests))
            .collect();
        assert_eq!(rows, [("", 15), (REST, 10), ("a", 1), ("t5", 4)]);
    }

    #[test]
    fn counts_add_up() {
        let mut sum = visits(1);
        sum.merge(&visits(2));
        assert_eq!(sum, visits(3));
        let mut most = visits(i64::MAX);
        most.merge(&visits(1));
        assert_eq!(most.requests, i64::MAX);
    }

    #[test]
    fn an_interval_contains_its_start() {
        let at: Timestamp = "2026-01-01T10:59:59.9Z".parse().unwrap();
        let start = |step: TrafficStep| step.start_of(at).to_string();
        assert_eq!(start(TrafficStep::Minute), "2026-01-01T10:59:00Z");
        assert_eq!(start(TrafficStep::Hour), "2026-01-01T10:00:00Z");
    }
}
