//! Stored summaries of streams: requests and connections that an edge served or refused.

pub(crate) mod search;

use jiff::Timestamp;
use types::id::{LogId, ProjectId, StreamId, TunnelId, WorkspaceId};

pub use self::search::index;
use crate::database::connection::{Conn, Tx};
use crate::database::page::{Order, Page, Paging, fold_case, like_pattern};
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::database::timeline::{Period, Timeline};
use crate::error::Error;
use crate::stored_records::{self, Table};

record! {
    /// A stored summary.
    pub struct Log from "logs" {
        /// Id.
        pub id: LogId,
        /// The workspace that the project belonged to.
        pub workspace_id: WorkspaceId,
        /// The project.
        pub project_id: ProjectId,
        /// The stream.
        pub stream_id: String,
        /// Its tunnel, if one was found.
        pub tunnel_id: Option<TunnelId>,
        /// Owner of the tunnel, as in the token.
        pub user_id: Option<String>,
        /// Outcome: `connected`, `failed` or `denied`.
        pub outcome: String,
        /// The summary, in the form of `stream.summary`.
        pub summary: serde_json::Value,
        /// Start of the stream.
        pub created_at: Timestamp,
        /// Expiry.
        pub expires_at: Timestamp,
    }
}

/// Filter of a list.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// The project, which the caller has been authorised for.
    pub project: ProjectId,
    /// Only streams in this period.
    pub period: Period,
    /// Only streams with this outcome.
    pub outcome: Option<&'a str>,
    /// Only streams of this tunnel.
    pub tunnel: Option<TunnelId>,
    /// Only this stream.
    pub stream: Option<StreamId>,
    /// Part of the search text given to [`insert`], ignoring case.
    pub search: Option<&'a str>,
    /// Only streams after this one in the list's order.
    pub after: Option<LogId>,
    /// Direction, by time.
    pub order: Order,
    /// Page.
    pub paging: Paging,
}

pub(crate) const COLUMNS: &str = "id, workspace_id, project_id, stream_id, tunnel_id, user_id, outcome, \
     summary, created_at, expires_at";

statements! {
    INSERT = "INSERT INTO logs (id, workspace_id, project_id, stream_id, tunnel_id, user_id, outcome, summary, \
        created_at, expires_at, search) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
        ON CONFLICT (project_id, stream_id) DO NOTHING";
}

/// Adds a summary. `search` is the text for searches: host, path, addresses. False if the stream
/// already exists: engines repeat reports that were not acknowledged, and usage is counted only for
/// new streams.
pub async fn insert(tx: &mut Tx, log: &Log, search: &str) -> Result<bool, Error> {
    sql(INSERT)
        .bind(log.id)
        .bind(log.workspace_id)
        .bind(log.project_id)
        .bind(&log.stream_id)
        .bind(log.tunnel_id)
        .bind(log.user_id.as_ref())
        .bind(&log.outcome)
        .bind(&log.summary)
        .bind(log.created_at)
        .bind(log.expires_at)
        .bind(fold_case(search))
        .changed(tx)
        .await
}

/// One page of a project's streams. The total is exact up to [`crate::COUNT_LIMIT`], that of a search
/// up to [`crate::MAX_SEARCH_TOTAL`]. A search without an index only covers the first
/// [`crate::MAX_SCANNED_ROWS`] streams of the list.
pub async fn list(conn: &mut Conn, list: List<'_>) -> Result<Page<Log>, Error> {
    if let Some(search) = list.search.filter(|search| !search.is_empty()) {
        let pattern = like_pattern(Some(search));
        if let Some(page) = search::page(conn, &list, search, &pattern).await? {
            return Ok(page);
        }
    }
    timeline(&list).page(conn, list.order, list.paging).await
}

/// Deletes at most `limit` expired streams. Returns their number. The caller repeats this until
/// there are fewer, with other transactions in between.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    stored_records::purge(tx, Table::Logs, now, limit).await
}

pub(crate) fn timeline(list: &List<'_>) -> Timeline {
    let mut timeline = conditions(list);
    let search = list.search.filter(|search| !search.is_empty());
    timeline.search(search.map(|search| like_pattern(Some(search))));
    timeline
}

/// The conditions of the list without its search.
pub(crate) fn conditions(list: &List<'_>) -> Timeline {
    let mut timeline = Timeline::new(COLUMNS, "logs", list.project);
    timeline.filter("outcome = $n", list.outcome);
    timeline.filter("tunnel_id = $n", list.tunnel);
    let stream = list.stream.map(|stream| stream.to_string());
    timeline.filter("stream_id = $n", stream.as_deref());
    timeline.within(list.period);
    let after = list.after.map(|id| id.to_string());
    timeline.after(after.as_deref(), list.order);
    timeline
}
