//! API of deliveries: their results, and manual retries.

use std::collections::HashMap;
use std::sync::Arc;

use api::control::webhooks::{WebhookDelivery, WebhookDeliveryList};
use axum::Json;
use axum::extract::State;
use serde_json::json;
use store::deliveries::{self, Delivery, List, Status};
use store::projects::Project;
use store::webhooks::{self, Webhook};
use store::{Conn, Order, Period};
use types::permission::Permission;
use types::problem::Problem;

use super::manage::locked_webhook;
use super::read::find_webhook;
use super::view;
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, WebhooksRead, WebhooksWrite};
use crate::http_api::extract::{Path, Query};
use crate::http_api::problem::HandlerResult;
use crate::projects::audit_entry;

pub(super) async fn list(
    caller: Caller<WebhooksRead>,
    State(app): State<Arc<App>>,
    Path((project_id, webhook_id)): Path<(String, String)>,
    mut query: Query,
) -> HandlerResult<Json<WebhookDeliveryList>> {
    let page = query.page()?;
    let status = query.keyword("status", &STATUSES)?;
    let kind = query.text("eventType");
    let period = Period {
        start: query.time("start")?,
        end: query.time("end")?,
    };
    let order = query.order()?.unwrap_or(Order::Desc);
    query.finish()?;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &project_id, READ).await?;
    let project = &found.project;
    let webhook = find_webhook(&mut conn, project, &webhook_id).await?;
    let list = List {
        project: project.id,
        webhook: webhook.id,
        status,
        kind: kind.as_deref(),
        period,
        order,
        paging: page.rows(),
    };
    let rows = deliveries::list(&mut conn, list).await?;
    let ids: Vec<_> = rows.items.iter().map(|row| row.id).collect();
    let latest = deliveries::latest_attempts(&mut conn, &ids).await?;
    let latest: HashMap<_, _> = latest.iter().map(|one| (one.delivery_id, one)).collect();
    let shown = rows
        .items
        .iter()
        .map(|row| view::delivery(row, project, latest.get(&row.id).copied()));
    Ok(Json(WebhookDeliveryList {
        deliveries: shown.collect(),
        paging: page.position(rows.total),
    }))
}

pub(super) async fn get(
    caller: Caller<WebhooksRead>,
    State(app): State<Arc<App>>,
    Path((project_id, webhook_id, delivery_id)): Path<(String, String, String)>,
    query: Query,
) -> HandlerResult<Json<WebhookDelivery>> {
    query.finish()?;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &project_id, READ).await?;
    let webhook = find_webhook(&mut conn, &found.project, &webhook_id).await?;
    let delivery = find_delivery(&mut conn, &webhook, &delivery_id).await?;
    delivery_with_attempts(&mut conn, &delivery, &found.project)
        .await
        .map(Json)
}

/// Makes a delivery due again, for one attempt more than it has had. The task then sends it.
pub(super) async fn retry(
    caller: Caller<WebhooksWrite>,
    State(app): State<Arc<App>>,
    Path((project_id, webhook_id, delivery_id)): Path<(String, String, String)>,
    query: Query,
) -> HandlerResult<Json<WebhookDelivery>> {
    query.finish()?;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let (project, webhook) =
        locked_webhook(&mut tx, &caller.principal, &project_id, &webhook_id).await?;
    let project = &project;
    let old = find_delivery(&mut tx, &webhook, &delivery_id).await?;
    access::require_usable(project)?;
    if webhook.status != webhooks::Status::Enabled {
        let detail = "The webhook is disabled; enable it first.";
        return Err(Problem::conflict().with_detail(detail).into());
    }
    if old.attempts >= MAX_ATTEMPTS {
        let detail = "It has reached the limit of attempts.";
        return Err(Problem::conflict().with_detail(detail).into());
    }
    if !deliveries::retry(&mut tx, webhook.id, old.id, now).await? {
        let detail = "Only failed or canceled deliveries can be retried.";
        return Err(Problem::conflict().with_detail(detail).into());
    }
    let details = json!({"webhook": webhook.id, "delivery": old.id});
    let (workspace, action) = (project.workspace_id, "webhook.delivery_retried");
    let who = &caller.principal;
    audit_entry::record_project_action(&mut tx, who, workspace, project.id, action, details, now)
        .await?;
    let new = find_delivery(&mut tx, &webhook, &delivery_id).await?;
    let shown = delivery_with_attempts(&mut tx, &new, project).await?;
    tx.commit().await?;
    app.webhooks.wake();
    Ok(Json(shown))
}

async fn find_delivery(conn: &mut Conn, webhook: &Webhook, id: &str) -> HandlerResult<Delivery> {
    let id = id.parse().map_err(|_| Problem::not_found())?;
    let found = deliveries::by_id(conn, webhook.project_id, webhook.id, id).await?;
    found.ok_or_else(|| Problem::not_found().into())
}

async fn delivery_with_attempts(
    conn: &mut Conn,
    delivery: &Delivery,
    project: &Project,
) -> HandlerResult<WebhookDelivery> {
    let attempts = deliveries::attempts(conn, delivery.id).await?;
    let mut shown = view::delivery(delivery, project, attempts.last());
    let numbered = (1..).zip(&attempts);
    let attempts = numbered.map(|(number, attempt)| view::attempt(number, attempt));
    shown.attempts = Some(attempts.collect());
    Ok(shown)
}

/// Number of attempts that the API returns.
const MAX_ATTEMPTS: i64 = 100;
const READ: Permission = Permission::NetworkWebhooksReadOnly;
const STATUSES: [(&str, Status); 6] = [
    ("pending", Status::Pending),
    ("delivering", Status::Delivering),
    ("retrying", Status::Retrying),
    ("succeeded", Status::Succeeded),
    ("failed", Status::Failed),
    ("canceled", Status::Canceled),
];
