//! The local ledger: subscriptions, their changes, and invoices. Amounts are in the currency's
//! smallest unit.

use jiff::Timestamp;
use types::id::{InvoiceId, ProjectId, SubscriptionChangeId, SubscriptionId, WorkspaceId};

use crate::database::connection::{Conn, Tx};
use crate::database::page::{Page, Paging};
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// The monthly subscription of a workspace.
    pub struct Subscription from "subscriptions" {
        /// Id.
        pub id: SubscriptionId,
        /// The paying workspace.
        pub workspace_id: WorkspaceId,
        /// Status, for example `active`.
        pub status: String,
        /// ISO 4217 code.
        pub currency: String,
        /// Current price per month.
        pub monthly_amount: i64,
        /// Its items, as the ledger writes them.
        pub items: serde_json::Value,
        /// Start of the subscription.
        pub started_at: Timestamp,
        /// Time of the last change.
        pub updated_at: Timestamp,
        /// End of the subscription.
        pub ended_at: Option<Timestamp>,
        /// End of the period that was invoiced last; none: unknown.
        pub renews_at: Option<Timestamp>,
    }
}

record! {
    /// A workspace whose subscription is due for renewal.
    pub struct DueSubscription from "subscriptions" {
        /// The workspace.
        pub workspace_id: WorkspaceId,
    }
}

record! {
    /// One change of a subscription.
    pub struct Change from "subscription_changes" {
        /// Id.
        pub id: SubscriptionChangeId,
        /// The subscription.
        pub subscription_id: SubscriptionId,
        /// The workspace.
        pub workspace_id: WorkspaceId,
        /// The project that caused it.
        pub project_id: Option<ProjectId>,
        /// Kind of change, for example `project_added`.
        pub kind: String,
        /// Immediate charge.
        pub amount: i64,
        /// Further details, as the ledger writes them.
        pub details: serde_json::Value,
        /// Time of the change.
        pub created_at: Timestamp,
    }
}

record! {
    /// An invoice.
    pub struct Invoice from "invoices" {
        /// Id.
        pub id: InvoiceId,
        /// The paying workspace.
        pub workspace_id: WorkspaceId,
        /// The subscription.
        pub subscription_id: SubscriptionId,
        /// Status, for example `open`.
        pub status: String,
        /// ISO 4217 code.
        pub currency: String,
        /// Total amount.
        pub amount: i64,
        /// Its lines, as the ledger writes them.
        pub lines: serde_json::Value,
        /// Start of the period.
        pub period_start: Timestamp,
        /// End of the period.
        pub period_end: Timestamp,
        /// Time of the invoice.
        pub created_at: Timestamp,
    }
}

macro_rules! subscription {
    () => {
        "id, workspace_id, status, currency, monthly_amount, items, started_at, updated_at, ended_at, \
         renews_at"
    };
}

macro_rules! change {
    () => {
        "id, subscription_id, workspace_id, project_id, kind, amount, details, created_at"
    };
}

macro_rules! invoice {
    () => {
        "id, workspace_id, subscription_id, status, currency, amount, lines, period_start, \
         period_end, created_at"
    };
}

statements! {
    SUBSCRIBE = concat!("INSERT INTO subscriptions (", subscription!(), ") \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)");
    OPEN = concat!("SELECT ", subscription!(), " FROM subscriptions WHERE workspace_id = $1 AND ended_at IS NULL");
    // Conditional on the amount that the caller based its decision on.
    UPDATE = "UPDATE subscriptions SET status = $3, monthly_amount = $4, items = $5, updated_at = $6 \
        WHERE id = $1 AND monthly_amount = $2 AND ended_at IS NULL";
    DUE = "SELECT workspace_id FROM subscriptions WHERE ended_at IS NULL \
        AND (renews_at IS NULL OR renews_at <= $1) ORDER BY renews_at, id LIMIT $2";
    // Conditional on the value that was read: of several concurrent renewals of a period, one
    // succeeds.
    RENEW = "UPDATE subscriptions SET renews_at = $3, updated_at = $4 \
        WHERE id = $1 AND COALESCE(renews_at, 0) = COALESCE(CAST($2 AS BIGINT), 0) AND ended_at IS NULL";
    END = "UPDATE subscriptions SET status = $2, ended_at = $3, updated_at = $3 WHERE id = $1 AND ended_at IS NULL";
    ADD_CHANGE = concat!("INSERT INTO subscription_changes (", change!(), ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8)");
    COUNT_CHANGES = "SELECT COUNT(*) AS n FROM subscription_changes WHERE workspace_id = $1";
    CHANGES = concat!("SELECT ", change!(), " FROM subscription_changes WHERE workspace_id = $1 \
        ORDER BY id DESC LIMIT $2 OFFSET $3");
    ADD_INVOICE = concat!("INSERT INTO invoices (", invoice!(), ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)");
    SET_INVOICE = "UPDATE invoices SET status = $3 WHERE id = $1 AND status = $2";
    COUNT_INVOICES = "SELECT COUNT(*) AS n FROM invoices WHERE workspace_id = $1";
    INVOICES = concat!("SELECT ", invoice!(), " FROM invoices WHERE workspace_id = $1 \
        ORDER BY id DESC LIMIT $2 OFFSET $3");
}

/// Starts a subscription.
///
/// # Errors
/// [`crate::Conflict::AlreadySubscribed`].
pub async fn subscribe(tx: &mut Tx, subscription: &Subscription) -> Result<(), Error> {
    sql(SUBSCRIBE)
        .bind(subscription.id)
        .bind(subscription.workspace_id)
        .bind(&subscription.status)
        .bind(&subscription.currency)
        .bind(subscription.monthly_amount)
        .bind(&subscription.items)
        .bind(subscription.started_at)
        .bind(subscription.updated_at)
        .bind(subscription.ended_at)
        .bind(subscription.renews_at)
        .execute(tx)
        .await?;
    Ok(())
}

/// The workspace's current subscription, if there is one.
pub async fn open(conn: &mut Conn, workspace: WorkspaceId) -> Result<Option<Subscription>, Error> {
    sql(OPEN).bind(workspace).one(conn).await
}

/// Writes the subscription's new state. False if its price is no longer `was`, or if it has
/// ended.
pub async fn update(tx: &mut Tx, was: i64, new: &Subscription) -> Result<bool, Error> {
    sql(UPDATE)
        .bind(new.id)
        .bind(was)
        .bind(&new.status)
        .bind(new.monthly_amount)
        .bind(&new.items)
        .bind(new.updated_at)
        .changed(tx)
        .await
}

/// Workspaces whose subscription has reached the end of a period, at most `limit`.
pub async fn due(
    conn: &mut Conn,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<DueSubscription>, Error> {
    sql(DUE).bind(now).bind(limit).all(conn).await
}

/// Moves a subscription to the end of its next period. False if its period does not end at `was`
/// any more, or if it has ended.
pub async fn renew(
    tx: &mut Tx,
    id: SubscriptionId,
    was: Option<Timestamp>,
    renews_at: Timestamp,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(RENEW)
        .bind(id)
        .bind(was)
        .bind(renews_at)
        .bind(now)
        .changed(tx)
        .await
}

/// Ends a subscription.
pub async fn end(
    tx: &mut Tx,
    id: SubscriptionId,
    status: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(END).bind(id).bind(status).bind(now).changed(tx).await
}

/// Records a change.
pub async fn add_change(tx: &mut Tx, change: &Change) -> Result<(), Error> {
    sql(ADD_CHANGE)
        .bind(change.id)
        .bind(change.subscription_id)
        .bind(change.workspace_id)
        .bind(change.project_id)
        .bind(&change.kind)
        .bind(change.amount)
        .bind(&change.details)
        .bind(change.created_at)
        .execute(tx)
        .await?;
    Ok(())
}

/// Number of changes of the workspace's subscriptions. It only grows, even if a subscription ends
/// and another one starts, so two equal numbers mean that nothing changed in between.
pub async fn revision(conn: &mut Conn, workspace: WorkspaceId) -> Result<u64, Error> {
    sql(COUNT_CHANGES).bind(workspace).count(conn).await
}

/// A workspace's changes, newest first.
pub async fn changes(
    conn: &mut Conn,
    workspace: WorkspaceId,
    paging: Paging,
) -> Result<Page<Change>, Error> {
    sql(CHANGES)
        .bind(workspace)
        .page(COUNT_CHANGES, conn, paging)
        .await
}

/// Writes an invoice.
pub async fn add_invoice(tx: &mut Tx, invoice: &Invoice) -> Result<(), Error> {
    sql(ADD_INVOICE)
        .bind(invoice.id)
        .bind(invoice.workspace_id)
        .bind(invoice.subscription_id)
        .bind(&invoice.status)
        .bind(&invoice.currency)
        .bind(invoice.amount)
        .bind(&invoice.lines)
        .bind(invoice.period_start)
        .bind(invoice.period_end)
        .bind(invoice.created_at)
        .execute(tx)
        .await?;
    Ok(())
}

/// Changes the status of an invoice. False if its status is not the expected one.
pub async fn set_invoice_status(
    tx: &mut Tx,
    id: InvoiceId,
    from: &str,
    to: &str,
) -> Result<bool, Error> {
    sql(SET_INVOICE)
        .bind(id)
        .bind(from)
        .bind(to)
        .changed(tx)
        .await
}

/// A workspace's invoices, newest first.
pub async fn invoices(
    conn: &mut Conn,
    workspace: WorkspaceId,
    paging: Paging,
) -> Result<Page<Invoice>, Error> {
    sql(INVOICES)
        .bind(workspace)
        .page(COUNT_INVOICES, conn, paging)
        .await
}
