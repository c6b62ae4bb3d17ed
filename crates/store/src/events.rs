//! Stored events of projects.

use jiff::Timestamp;
use types::id::{EventId, ProjectId, WorkspaceId};

use crate::database::connection::{Conn, Tx};
use crate::database::page::{Order, Page, Paging};
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::database::timeline::{Period, Timeline};
use crate::error::Error;
use crate::stored_records::{self, Table};

record! {
    /// A stored event.
    pub struct Event from "events" {
        /// Id, the same as in the live stream.
        pub id: EventId,
        /// Type, for example `tunnel.created`.
        pub kind: String,
        /// `lifecycle` or `stream_log`.
        pub category: String,
        /// The workspace that the project belonged to.
        pub workspace_id: WorkspaceId,
        /// The project.
        pub project_id: ProjectId,
        /// The cluster that reported it.
        pub cluster_id: Option<String>,
        /// User that the client or tunnel belongs to, as in the token.
        pub user_id: Option<String>,
        /// The event's object.
        pub payload: serde_json::Value,
        /// Time of the event.
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
    /// Only events in this period.
    pub period: Period,
    /// Only events of this type.
    pub kind: Option<&'a str>,
    /// Only events after this one in the list's order.
    pub after: Option<EventId>,
    /// Direction, by time.
    pub order: Order,
    /// Page.
    pub paging: Paging,
}

const COLUMNS: &str = "id, kind, category, workspace_id, project_id, cluster_id, user_id, payload, \
     created_at, expires_at";

statements! {
    // Engines repeat reports that were not acknowledged.
    INSERT = "INSERT INTO events (id, kind, category, workspace_id, project_id, cluster_id, user_id, payload, \
        created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO NOTHING";
}

/// Adds an event. False if it already exists.
pub async fn insert(tx: &mut Tx, event: &Event) -> Result<bool, Error> {
    sql(INSERT)
        .bind(event.id)
        .bind(&event.kind)
        .bind(&event.category)
        .bind(event.workspace_id)
        .bind(event.project_id)
        .bind(event.cluster_id.as_ref())
        .bind(event.user_id.as_ref())
        .bind(&event.payload)
        .bind(event.created_at)
        .bind(event.expires_at)
        .changed(tx)
        .await
}

/// One page of a project's events. The total is exact up to [`crate::COUNT_LIMIT`].
pub async fn list(conn: &mut Conn, list: List<'_>) -> Result<Page<Event>, Error> {
    let after = list.after.map(|id| id.to_string());
    timeline(&list, after.as_deref())
        .page(conn, list.order, list.paging)
        .await
}

/// Deletes at most `limit` expired events. Returns their number. The caller repeats this until
/// there are fewer, with other transactions in between.
pub async fn purge(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<u64, Error> {
    stored_records::purge(tx, Table::Events, now, limit).await
}

pub(crate) fn timeline(list: &List<'_>, after: Option<&str>) -> Timeline {
    let mut timeline = Timeline::new(COLUMNS, "events", list.project);
    timeline.filter("kind = $n", list.kind);
    timeline.within(list.period);
    timeline.after(after, list.order);
    timeline
}
