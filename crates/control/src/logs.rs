//! Logs of a project: requests, connections and events. Engines report them, and this API reads
//! them.

mod search;
pub mod timeline;
pub mod traffic;
pub mod usage;

use std::str::FromStr;
use std::sync::Arc;

use api::control::records::{EVENTS, EventCategory, EventList, LOGS, LogList, StoredEvent};
use axum::extract::State;
use axum::{Json, Router};
use store::{Order, Period, events, logs, projects};
use types::id::StreamId;
use types::permission::Permission;
use types::problem::Problem;

pub use self::search::SearchLimit;
use self::timeline::{Range, rfc3339};
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, EventsRead, LogsRead};
use crate::http_api::extract::{Query, Segment};
use crate::http_api::problem::HandlerResult;
use crate::http_api::route::OperationRouter as _;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(LOGS, list_logs)
        .serve(EVENTS, list_events)
}

async fn list_logs(
    caller: Caller<LogsRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    mut query: Query,
) -> HandlerResult<Json<LogList>> {
    let stream: Option<StreamId> = id_of(&mut query, "streamId")?;
    let is_anytime = stream.is_some() && !Range::is_present(&query);
    let range = Range::from_query(&mut query, app.now())?;
    let (page, order) = (query.page()?, order(&mut query)?);
    let after = id_of(&mut query, "afterEventId")?;
    let tunnel = id_of(&mut query, "tunnelId")?;
    let outcome = query.text("outcome");
    if outcome
        .as_deref()
        .is_some_and(|word| !OUTCOMES.contains(&word))
    {
        return Err(bad("outcome", "expected connected, failed or denied").into());
    }
    if query
        .text("eventType")
        .is_some_and(|kind| kind != STREAM_SUMMARY)
    {
        return Err(bad("eventType", "logs are stream.summary events").into());
    }
    let search = query.text("q");
    query.finish()?;
    let _turn = match &search {
        Some(_) => Some(app.searches.begin(caller.principal.user.id).await?),
        None => None,
    };
    let permission = Permission::NetworkStreamsReadOnly;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &id, permission).await?;
    let list = logs::List {
        project: found.project.id,
        // One stream is found by its own index, at any time.
        period: if is_anytime {
            Period::default()
        } else {
            range.period()
        },
        outcome: outcome.as_deref(),
        tunnel,
        stream,
        search: search.as_deref(),
        after,
        order,
        paging: page.rows(),
    };
    let rows = logs::list(&mut conn, list).await?;
    let shown = rows.items.into_iter().map(|row| log(row, &found.project));
    Ok(Json(LogList {
        logs: shown.collect(),
        paging: page.position(rows.total),
    }))
}

async fn list_events(
    caller: Caller<EventsRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    mut query: Query,
) -> HandlerResult<Json<EventList>> {
    let range = Range::from_query(&mut query, app.now())?;
    let (page, order) = (query.page()?, order(&mut query)?);
    let after = id_of(&mut query, "afterEventId")?;
    let kind = query.text("eventType");
    query.finish()?;
    let permission = Permission::NetworkEventsReadOnly;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &id, permission).await?;
    let list = events::List {
        project: found.project.id,
        period: range.period(),
        kind: kind.as_deref(),
        after,
        order,
        paging: page.rows(),
    };
    let rows = events::list(&mut conn, list).await?;
    let shown = rows.items.into_iter().map(|row| event(row, &found.project));
    Ok(Json(EventList {
        events: shown.collect(),
        paging: page.position(rows.total),
    }))
}

/// Converts a row. It stores the workspace of the project at the time of the request. The response
/// has the current workspace.
fn log(row: logs::Log, project: &projects::Project) -> StoredEvent {
    StoredEvent {
        event_id: row.id.to_string(),
        event_type: STREAM_SUMMARY.to_owned(),
        event_category: EventCategory::StreamLog,
        project_id: row.project_id.to_string(),
        workspace_id: project.workspace_id.to_string(),
        cluster_id: None,
        user_id: row.user_id,
        payload: row.summary,
        created_at: rfc3339(row.created_at),
        expires_at: rfc3339(row.expires_at),
    }
}

fn event(row: events::Event, project: &projects::Project) -> StoredEvent {
    StoredEvent {
        event_id: row.id.to_string(),
        event_type: row.kind,
        event_category: if row.category == STREAM_LOG {
            EventCategory::StreamLog
        } else {
            EventCategory::Lifecycle
        },
        project_id: row.project_id.to_string(),
        workspace_id: project.workspace_id.to_string(),
        cluster_id: row.cluster_id,
        user_id: row.user_id,
        payload: row.payload,
        created_at: rfc3339(row.created_at),
        expires_at: rfc3339(row.expires_at),
    }
}

/// Removes the order; newest first if it is absent.
fn order(query: &mut Query) -> HandlerResult<Order> {
    match query.text("order").as_deref() {
        None | Some("desc") => Ok(Order::Desc),
        Some("asc") => Ok(Order::Asc),
        Some(_) => Err(bad("order", "expected asc or desc").into()),
    }
}

fn id_of<T: FromStr>(query: &mut Query, name: &str) -> HandlerResult<Option<T>> {
    query.parsed(name, "an id of the right type")
}

fn bad(field: &str, message: &'static str) -> Problem {
    Problem::invalid_request(format!("{field}: {message}")).with_field(field)
}

const STREAM_SUMMARY: &str = "stream.summary";
const STREAM_LOG: &str = "stream_log";
const OUTCOMES: [&str; 3] = ["connected", "failed", "denied"];
