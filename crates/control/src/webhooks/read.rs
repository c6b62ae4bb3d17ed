//! `GET` of webhooks.

use std::sync::Arc;

use api::control::webhooks::{Webhook, WebhookList};
use axum::Json;
use axum::extract::State;
use store::Conn;
use store::projects::Project;
use store::webhooks::{self, List, Sort, Status};
use types::permission::Permission;
use types::problem::Problem;

use super::view;
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, WebhooksRead};
use crate::http_api::extract::{Path, Query, Segment};
use crate::http_api::problem::HandlerResult;

pub(super) async fn list(
    caller: Caller<WebhooksRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    mut query: Query,
) -> HandlerResult<Json<WebhookList>> {
    let page = query.page()?;
    let search = query.text("q").filter(|text| !text.is_empty());
    let status = query.keyword("status", &STATUSES)?;
    let is_ours = query
        .keyword("destinationType", &DESTINATIONS)?
        .unwrap_or(true);
    let sort = query.keyword("sort", &SORTS)?.unwrap_or_default();
    let order = query.order()?.unwrap_or_default();
    query.finish()?;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &id, PERMISSION).await?;
    let project = &found.project;
    let list = List {
        project: project.id,
        search: search.as_deref(),
        status,
        sort,
        order,
        paging: page.rows(),
    };
    let mut rows = webhooks::list(&mut conn, list).await?;
    if !is_ours {
        rows.items.clear();
        rows.total = 0;
    }
    let now = app.now();
    let role = found.role.into();
    let shown = rows
        .items
        .iter()
        .map(|row| view::webhook_for(role, row, project, now));
    Ok(Json(WebhookList {
        webhooks: shown.collect(),
        paging: page.position(rows.total),
    }))
}

pub(super) async fn get(
    caller: Caller<WebhooksRead>,
    State(app): State<Arc<App>>,
    Path((project_id, webhook_id)): Path<(String, String)>,
    query: Query,
) -> HandlerResult<Json<Webhook>> {
    query.finish()?;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &project_id, PERMISSION).await?;
    let webhook = find_webhook(&mut conn, &found.project, &webhook_id).await?;
    let role = found.role.into();
    let shown = view::webhook_for(role, &webhook, &found.project, app.now());
    Ok(Json(shown))
}

/// The webhook with this name in a project that the caller may see.
pub(super) async fn find_webhook(
    conn: &mut Conn,
    project: &Project,
    id: &str,
) -> HandlerResult<webhooks::Webhook> {
    let id = id.parse().map_err(|_| Problem::not_found())?;
    let found = webhooks::by_id(conn, project.id, id).await?;
    found.ok_or_else(|| Problem::not_found().into())
}

const PERMISSION: Permission = Permission::NetworkWebhooksReadOnly;
const STATUSES: [(&str, Status); 2] =
    [("enabled", Status::Enabled), ("disabled", Status::Disabled)];
/// Destination types, with `true` for those that exist on this platform.
const DESTINATIONS: [(&str, bool); 3] = [
    ("webhook_endpoint", true),
    ("amazon_eventbridge", false),
    ("azure_event_grid", false),
];
const SORTS: [(&str, Sort); 4] = [
    ("name", Sort::Name),
    ("status", Sort::Status),
    ("createdAt", Sort::Id),
    ("updatedAt", Sort::UpdatedAt),
];
