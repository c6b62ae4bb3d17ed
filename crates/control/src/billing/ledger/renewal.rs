//! Renewal of subscriptions: each period is charged in turn.
//!
//! The subscription stores the end of the period that was charged last. The transaction that writes
//! the invoice also advances this end, with a statement that compares the old value. So each period
//! is charged once, even with concurrent attempts, and an interruption has charged nothing.

use jiff::Timestamp;
use serde_json::json;
use store::billing::{self, Invoice, Subscription};
use store::workspaces::{self, Status};
use store::{Tx, billing::renew};
use types::id::{InvoiceId, WorkspaceId, unix_millis};
use types::problem::Problem;

use super::{end_of_period, period_of, read_items, record_change};
use crate::http_api::problem::HandlerResult;
use crate::runtime::random;

/// Treatment of a subscription without projects at the end of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EmptySubscription {
    /// It ends, and the workspace stops paying.
    End,
    /// It is kept, because a project is about to be added.
    Keep,
}

/// Renews every period that has ended, so that a decision afterwards uses the running one.
pub(super) async fn catch_up(
    tx: &mut Tx,
    workspace: WorkspaceId,
    now: Timestamp,
) -> HandlerResult<()> {
    for _ in 0..MAX_PERIODS {
        if !renew_once(tx, workspace, now, EmptySubscription::Keep).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Ten years. A workspace that is further behind is completed by the next pass.
const MAX_PERIODS: u32 = 120;

/// Renews by one period. False if no period has ended.
pub(super) async fn renew_once(
    tx: &mut Tx,
    workspace: WorkspaceId,
    now: Timestamp,
    empty: EmptySubscription,
) -> HandlerResult<bool> {
    let Some(row) = billing::open(tx, workspace).await? else {
        return Ok(false);
    };
    let Some(was) = row.renews_at else {
        // The row is from a version without renewals. Its running month was charged at the start.
        let end = end_of_period(row.started_at, now, now);
        return Ok(renew(tx, row.id, None, end, now).await?);
    };
    if was > now {
        return Ok(false);
    }
    let owner = workspaces::by_id(tx, workspace).await?;
    let items = read_items(&row.items)?;
    if items.is_empty() && empty == EmptySubscription::End {
        return end(
            tx,
            &row,
            owner.is_some_and(|owner| owner.has_payment_method),
            now,
        )
        .await;
    }
    let until = end_of_period(row.started_at, was, now);
    if until <= was {
        tracing::error!(subscription.id = %row.id, "a period does not end after its start");
        return Err(Problem::internal().into());
    }
    if !renew(tx, row.id, Some(was), until, now).await? {
        return Ok(false);
    }
    // Suspended workspaces do not pay.
    let is_suspended = owner.is_none_or(|owner| owner.status == Status::Suspended);
    let period = period_of(row.started_at, was);
    let charged = items.iter().map(|line| (line, line.amount_of(period)));
    let charged: Vec<_> = charged.filter(|(_, amount)| *amount > 0).collect();
    let amount = charged
        .iter()
        .fold(0_i64, |sum, (_, amount)| sum.saturating_add(*amount));
    let lines = charged.iter().map(
        |(line, amount)| json!({"projectId": line.project_id, "plan": line.plan, "amount": amount}),
    );
    let (kind, amount) = if is_suspended || amount == 0 {
        ("period_skipped", 0)
    } else {
        ("renewed", amount)
    };
    if amount > 0 {
        let invoice = Invoice {
            id: InvoiceId::new(unix_millis(now), random::bytes()?),
            workspace_id: workspace,
            subscription_id: row.id,
            status: "open".to_owned(),
            currency: row.currency.clone(),
            amount,
            lines: lines.collect(),
            period_start: was,
            period_end: until,
            created_at: now,
        };
        billing::add_invoice(tx, &invoice).await?;
    }
    record_change(tx, &row, None, kind, amount, now).await?;
    Ok(true)
}

/// Ends a subscription without projects.
async fn end(
    tx: &mut Tx,
    row: &Subscription,
    has_payment_method: bool,
    now: Timestamp,
) -> HandlerResult<bool> {
    if !billing::end(tx, row.id, "canceled", now).await? {
        return Ok(false);
    }
    workspaces::set_billing(tx, row.workspace_id, None, has_payment_method, now).await?;
    record_change(tx, row, None, "ended", 0, now).await?;
    Ok(true)
}
