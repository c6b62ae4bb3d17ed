//! Billing: the decision about the cost of a creation, and the ledger that stores the result.
//!
//! The decision ([`decide`]) is a function of the plan's terms, the workspace's account and the
//! day. Callers confirm the decision and cannot change it (CP-4c).

mod account;
mod decision;
mod ledger;
mod pages;
pub mod plans;
mod read;
mod routes;

use std::pin::Pin;

use jiff::Timestamp;
use jiff::civil::Date;
use store::{Conn, Tx};
use types::id::{ProjectId, WorkspaceId};

pub(crate) use self::account::day_of;
pub use self::account::{Account, PaymentStatus, Period, Subscription};
pub use self::decision::{Decision, decide};
pub use self::ledger::Ledger;
pub use self::routes::routes;
use crate::http_api::problem::HandlerResult;

/// A provider of accounts. [`Ledger`] stores them in the platform's own database. An implementation
/// for an external payment provider records the pending call in the same transaction, and makes the
/// call after the commit.
pub trait Billing: Send + Sync + 'static {
    /// The account of a workspace.
    fn account<'a>(
        &'a self,
        conn: &'a mut Conn,
        workspace: WorkspaceId,
    ) -> BillingFuture<'a, Account>;

    /// Starts a subscription after the workspace has paid, or set billing up, on a hosted page. Has
    /// no effect if there is an active one already.
    fn subscribe<'a>(
        &'a self,
        tx: &'a mut Tx,
        workspace: WorkspaceId,
        currency: &'a str,
        now: Timestamp,
    ) -> BillingFuture<'a, ()>;

    /// Adds a project to the subscription that the decision names.
    fn add<'a>(&'a self, tx: &'a mut Tx, item: &'a Item, now: Timestamp) -> BillingFuture<'a, ()>;

    /// The monthly amount that the subscription of the workspace has for a project. `None` if it
    /// does not pay for the project.
    fn monthly<'a>(
        &'a self,
        conn: &'a mut Conn,
        workspace: WorkspaceId,
        project: ProjectId,
    ) -> BillingFuture<'a, Option<i64>>;

    /// Removes a project from the subscription that pays for it, if there is one. Returns the day
    /// until which the project is paid for, because the rest of the running month is not refunded.
    fn remove<'a>(
        &'a self,
        tx: &'a mut Tx,
        workspace: WorkspaceId,
        project: ProjectId,
        now: Timestamp,
    ) -> BillingFuture<'a, Option<Date>>;

    /// Workspaces with a subscription whose period has ended. If there are many, only some of them.
    fn due<'a>(&'a self, conn: &'a mut Conn, now: Timestamp)
    -> BillingFuture<'a, Vec<WorkspaceId>>;

    /// Renews the subscription of a workspace by one period, if it is due: charges the period, or
    /// ends a subscription without projects. False if it was not due. Each period is charged once,
    /// even with repeated or concurrent calls. The caller holds the workspace's lock.
    fn renew<'a>(
        &'a self,
        tx: &'a mut Tx,
        workspace: WorkspaceId,
        now: Timestamp,
    ) -> BillingFuture<'a, bool>;
}

/// Asynchronous result of a billing provider.
pub type BillingFuture<'a, T> = Pin<Box<dyn Future<Output = HandlerResult<T>> + Send + 'a>>;

/// A project that a subscription pays for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The workspace that pays.
    pub workspace: WorkspaceId,
    /// The project.
    pub project: ProjectId,
    /// Its plan.
    pub plan: &'static str,
    /// Due immediately, in the smallest unit of the currency.
    pub amount_now: i64,
    /// Due every month, in the smallest unit of the currency.
    pub monthly: i64,
    /// The first day that is not paid for, if another subscription has paid for the project.
    pub paid_until: Option<Date>,
}
