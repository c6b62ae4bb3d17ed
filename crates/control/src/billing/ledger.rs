//! The local ledger. It stores subscriptions, changes and invoices as rows of the platform's
//! database.
//!
//! It does not collect payments. Amounts due are in invoices that the operator reads.

mod renewal;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::billing::{self, Change, Invoice};
use store::{Conn, Tx, workspaces};
use types::id::{
    InvoiceId, ProjectId, SubscriptionChangeId, SubscriptionId, WorkspaceId, unix_millis,
};
use types::problem::Problem;

use super::account::{Account, PaymentStatus, Period, Subscription, day_of};
use super::{Billing, BillingFuture, Item};
use crate::http_api::problem::HandlerResult;
use crate::runtime::random;

/// Accounts in the platform's own database.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ledger;

impl Billing for Ledger {
    fn account<'a>(
        &'a self,
        conn: &'a mut Conn,
        workspace: WorkspaceId,
    ) -> BillingFuture<'a, Account> {
        Box::pin(async move {
            let subscription = billing::open(conn, workspace).await?;
            let has_payment_method = workspaces::by_id(conn, workspace)
                .await?
                .is_some_and(|workspace| workspace.has_payment_method);
            Ok(Account {
                subscription: subscription.map(|row| Subscription {
                    id: row.id.to_string(),
                    payment_status: if row.status == ACTIVE {
                        PaymentStatus::Paid
                    } else {
                        PaymentStatus::PastDue
                    },
                    since: day_of(row.started_at),
                }),
                has_payment_method,
                revision: billing::revision(conn, workspace).await?,
            })
        })
    }

    fn subscribe<'a>(
        &'a self,
        tx: &'a mut Tx,
        workspace: WorkspaceId,
        currency: &'a str,
        now: Timestamp,
    ) -> BillingFuture<'a, ()> {
        Box::pin(async move {
            match billing::open(tx, workspace).await? {
                Some(row) if row.status == ACTIVE => {}
                Some(row) => {
                    let new = billing::Subscription {
                        status: ACTIVE.to_owned(),
                        updated_at: now,
                        ..row
                    };
                    update_subscription(tx, new.monthly_amount, &new).await?;
                    record_change(tx, &new, None, "restored", 0, now).await?;
                }
                None => {
                    let new = billing::Subscription {
                        id: SubscriptionId::new(unix_millis(now), random::bytes()?),
                        workspace_id: workspace,
                        status: ACTIVE.to_owned(),
                        currency: currency.to_owned(),
                        monthly_amount: 0,
                        items: json!([]),
                        started_at: now,
                        updated_at: now,
                        ended_at: None,
                        renews_at: Some(end_of_period(now, now, now)),
                    };
                    billing::subscribe(tx, &new).await?;
                    record_change(tx, &new, None, "subscribed", 0, now).await?;
                }
            }
            workspaces::set_billing(tx, workspace, Some(ACTIVE), true, now).await?;
            Ok(())
        })
    }

    fn add<'a>(&'a self, tx: &'a mut Tx, item: &'a Item, now: Timestamp) -> BillingFuture<'a, ()> {
        Box::pin(async move {
            // The decision was made on this subscription, under the workspace's lock. If it is
            // missing, another writer has ignored the lock.
            renewal::catch_up(tx, item.workspace, now).await?;
            let row = billing::open(tx, item.workspace)
                .await?
                .ok_or_else(Problem::creation_preview_stale)?;
            let mut items = read_items(&row.items)?;
            items.push(LedgerLine {
                project_id: item.project.to_string(),
                plan: item.plan.to_owned(),
                monthly: item.monthly,
                paid_until: item.paid_until,
            });
            let new = with_items(row.clone(), &items, now);
            update_subscription(tx, row.monthly_amount, &new).await?;
            record_change(
                tx,
                &new,
                Some(item.project),
                "project_added",
                item.amount_now,
                now,
            )
            .await?;
            if item.amount_now > 0 {
                billing::add_invoice(tx, &invoice(&new, item, now)?).await?;
            }
            Ok(())
        })
    }

    fn monthly<'a>(
        &'a self,
        conn: &'a mut Conn,
        workspace: WorkspaceId,
        project: ProjectId,
    ) -> BillingFuture<'a, Option<i64>> {
        Box::pin(async move {
            let Some(row) = billing::open(conn, workspace).await? else {
                return Ok(None);
            };
            let items = read_items(&row.items)?;
            let mut lines = items.iter();
            let line = lines.find(|line| line.project_id == project.as_str());
            Ok(line.map(|line| line.monthly))
        })
    }

    fn remove<'a>(
        &'a self,
        tx: &'a mut Tx,
        workspace: WorkspaceId,
        project: ProjectId,
        now: Timestamp,
    ) -> BillingFuture<'a, Option<Date>> {
        Box::pin(async move {
            renewal::catch_up(tx, workspace, now).await?;
            let Some(row) = billing::open(tx, workspace).await? else {
                return Ok(None);
            };
            let mut items = read_items(&row.items)?;
            let of_project = |line: &LedgerLine| line.project_id == project.as_str();
            let Some(at) = items.iter().position(of_project) else {
                return Ok(None);
            };
            let removed = items.remove(at);
            let new = with_items(row.clone(), &items, now);
            update_subscription(tx, row.monthly_amount, &new).await?;
            record_change(tx, &new, Some(project), "project_removed", 0, now).await?;
            let end = period_of(row.started_at, now).end;
            Ok(Some(removed.paid_until.map_or(end, |paid| paid.max(end))))
        })
    }

    fn due<'a>(
        &'a self,
        conn: &'a mut Conn,
        now: Timestamp,
    ) -> BillingFuture<'a, Vec<WorkspaceId>> {
        Box::pin(async move {
            let due = billing::due(conn, now, MAX_DUE).await?;
            Ok(due.into_iter().map(|due| due.workspace_id).collect())
        })
    }

    fn renew<'a>(
        &'a self,
        tx: &'a mut Tx,
        workspace: WorkspaceId,
        now: Timestamp,
    ) -> BillingFuture<'a, bool> {
        Box::pin(renewal::renew_once(
            tx,
            workspace,
            now,
            renewal::EmptySubscription::End,
        ))
    }
}

/// Maximum number of workspaces in one query. The next query finds the rest.
const MAX_DUE: u32 = 100;

/// One project of a subscription, in the form of the column `items`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LedgerLine {
    pub(super) project_id: String,
    pub(super) plan: String,
    pub(super) monthly: i64,
    /// The first day that is not paid for, if another subscription has paid for the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) paid_until: Option<Date>,
}

impl LedgerLine {
    /// The cost of a period, without the days that another subscription has paid for.
    fn amount_of(&self, period: Period) -> i64 {
        let from = self.paid_until.unwrap_or(period.start).max(period.start);
        period.prorated_amount(self.monthly, from)
    }
}

/// Status of an active subscription.
const ACTIVE: &str = "active";

/// The projects that a subscription pays for.
pub(super) fn read_items(items: &Value) -> HandlerResult<Vec<LedgerLine>> {
    Vec::deserialize(items).map_err(|_| {
        tracing::error!("the items of a subscription cannot be read");
        Problem::internal().into()
    })
}

fn with_items(
    mut row: billing::Subscription,
    items: &[LedgerLine],
    now: Timestamp,
) -> billing::Subscription {
    row.monthly_amount = items
        .iter()
        .fold(0, |sum, line| line.monthly.saturating_add(sum));
    row.items = json!(items);
    row.updated_at = now;
    row
}

async fn update_subscription(
    tx: &mut Tx,
    was: i64,
    new: &billing::Subscription,
) -> HandlerResult<()> {
    if billing::update(tx, was, new).await? {
        Ok(())
    } else {
        Err(Problem::creation_preview_stale().into())
    }
}

async fn record_change(
    tx: &mut Tx,
    subscription: &billing::Subscription,
    project: Option<ProjectId>,
    kind: &str,
    amount: i64,
    now: Timestamp,
) -> HandlerResult<()> {
    let change = Change {
        id: SubscriptionChangeId::new(unix_millis(now), random::bytes()?),
        subscription_id: subscription.id,
        workspace_id: subscription.workspace_id,
        project_id: project,
        kind: kind.to_owned(),
        amount,
        details: json!({"monthlyAmount": subscription.monthly_amount}),
        created_at: now,
    };
    billing::add_change(tx, &change).await?;
    Ok(())
}

fn invoice(
    subscription: &billing::Subscription,
    item: &Item,
    now: Timestamp,
) -> HandlerResult<Invoice> {
    let first = item.paid_until.unwrap_or(Date::MIN).max(day_of(now));
    Ok(Invoice {
        id: InvoiceId::new(unix_millis(now), random::bytes()?),
        workspace_id: item.workspace,
        subscription_id: subscription.id,
        status: "open".to_owned(),
        currency: subscription.currency.clone(),
        amount: item.amount_now,
        lines: json!([{
            "projectId": item.project,
            "plan": item.plan,
            "amount": item.amount_now,
        }]),
        period_start: start_of_day(first, now),
        period_end: end_of_period(subscription.started_at, now, now),
        created_at: now,
    })
}

/// The end of the period at `at`, of a subscription that started at `since`.
fn end_of_period(since: Timestamp, at: Timestamp, now: Timestamp) -> Timestamp {
    start_of_day(period_of(since, at).end, now)
}

/// The period at `at`, of a subscription that started at `since`.
fn period_of(since: Timestamp, at: Timestamp) -> Period {
    let terms = Subscription {
        id: String::new(),
        payment_status: PaymentStatus::Paid,
        since: day_of(since),
    };
    terms.period(day_of(at))
}

/// The start of the day in UTC; `otherwise` if it is outside the calendar's range.
fn start_of_day(day: Date, otherwise: Timestamp) -> Timestamp {
    day.to_zoned(TimeZone::UTC)
        .map_or(otherwise, |moment| moment.timestamp())
}
