//! `GET …/billing`: the ledger entries of a workspace.

use std::sync::Arc;

use api::control::billing::{
    GET, InvoiceLine, InvoiceList, InvoiceView, LIST_INVOICES, SubscriptionItem, SubscriptionView,
    WorkspaceBilling,
};
use api::control::plans::{Currency, Plan, Price};
use axum::extract::State;
use axum::{Json, Router};
use serde::Deserialize;
use store::billing::{self, Invoice, Subscription};
use types::permission::Permission;
use types::problem::Problem;

use super::ledger::read_items;
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, PlanRead};
use crate::http_api::extract::{Query, Segment};
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::http_api::route::OperationRouter as _;
use crate::http_api::wire::date;

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(GET, get)
        .serve(LIST_INVOICES, list_invoices)
}

async fn get(
    caller: Caller<PlanRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    query: Query,
) -> HandlerResult<Json<WorkspaceBilling>> {
    query.finish()?;
    let mut read = app.store.read().await?;
    let workspace = access::workspace(&mut read, &caller.principal, &id, PERMISSION).await?;
    let open = billing::open(&mut read, workspace.id).await?;
    Ok(Json(WorkspaceBilling {
        has_payment_method: workspace.has_payment_method,
        subscription: open.as_ref().map(subscription).transpose()?,
    }))
}

async fn list_invoices(
    caller: Caller<PlanRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    mut query: Query,
) -> HandlerResult<Json<InvoiceList>> {
    let page = query.page()?;
    query.finish()?;
    let mut read = app.store.read().await?;
    let workspace = access::workspace(&mut read, &caller.principal, &id, PERMISSION).await?;
    let found = billing::invoices(&mut read, workspace.id, page.rows()).await?;
    Ok(Json(InvoiceList {
        invoices: found
            .items
            .iter()
            .map(invoice)
            .collect::<HandlerResult<_>>()?,
        paging: page.position(found.total),
    }))
}

fn subscription(row: &Subscription) -> HandlerResult<SubscriptionView> {
    let currency = parse_currency(&row.currency)?;
    let items = read_items(&row.items)?.into_iter().map(|line| {
        Ok(SubscriptionItem {
            plan: parse_plan(&line.plan)?,
            project_id: line.project_id,
            monthly: price(line.monthly, currency),
        })
    });
    Ok(SubscriptionView {
        id: row.id.to_string(),
        status: row.status.clone(),
        monthly: price(row.monthly_amount, currency),
        items: items.collect::<HandlerResult<_>>()?,
        started_at: date(row.started_at),
        renews_at: row.renews_at.map(date),
    })
}

/// A line in the form that invoices store.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredLine {
    project_id: String,
    plan: String,
    amount: i64,
}

fn invoice(row: &Invoice) -> HandlerResult<InvoiceView> {
    let currency = parse_currency(&row.currency)?;
    let lines = Vec::<StoredLine>::deserialize(&row.lines).map_err(|_| unreadable())?;
    let lines = lines.into_iter().map(|line| {
        Ok(InvoiceLine {
            plan: parse_plan(&line.plan)?,
            project_id: line.project_id,
            price: price(line.amount, currency),
        })
    });
    Ok(InvoiceView {
        id: row.id.to_string(),
        subscription_id: row.subscription_id.to_string(),
        status: row.status.clone(),
        total: price(row.amount, currency),
        lines: lines.collect::<HandlerResult<_>>()?,
        period_start: date(row.period_start),
        period_end: date(row.period_end),
        created_at: date(row.created_at),
    })
}

fn price(amount_minor: i64, currency: Currency) -> Price {
    Price {
        amount_minor,
        currency,
    }
}

fn parse_currency(word: &str) -> HandlerResult<Currency> {
    word.parse().map_err(|_| unreadable())
}

fn parse_plan(word: &str) -> HandlerResult<Plan> {
    word.parse().map_err(|_| unreadable())
}

fn unreadable() -> Refusal {
    tracing::error!("the billing data in the database cannot be read");
    Problem::internal().into()
}

const PERMISSION: Permission = Permission::AccountPlanReadOnly;
