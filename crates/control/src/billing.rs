//! Who pays what: the decision about a creation, and the ledger that keeps what was decided.
//!
//! The decision ([`decide`]) is a function of the plan's terms, the workspace's account and the
//! day. Callers confirm what it says; they never choose (CP-4c).

mod account;
mod decision;
mod ledger;
mod pages;
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
use crate::problem::Answer;

/// What keeps accounts. [`Ledger`] keeps them in the platform's own database; whoever charges
/// through somebody else writes what is to be done there into the same transaction, and does it
/// after.
pub trait Billing: Send + Sync + 'static {
    /// The account of a workspace.
    fn account<'a>(
        &'a self,
        conn: &'a mut Conn,
        workspace: WorkspaceId,
    ) -> BillingFuture<'a, Account>;

    /// Begins a subscription: the workspace has paid, or set billing up, on a hosted page.
    /// Nothing happens where there is one already that is in good standing.
    fn subscribe<'a>(
        &'a self,
        tx: &'a mut Tx,
        workspace: WorkspaceId,
        currency: &'a str,
        now: Timestamp,
    ) -> BillingFuture<'a, ()>;

    /// Adds a project to the subscription that the decision names.
    fn add<'a>(&'a self, tx: &'a mut Tx, item: &'a Item, now: Timestamp) -> BillingFuture<'a, ()>;

    /// Takes a project off the subscription of the workspace, if it is on it, and returns the day until
    /// which the project is paid for: the rest of the running month is not refunded.
    fn remove<'a>(
        &'a self,
        tx: &'a mut Tx,
        workspace: WorkspaceId,
        project: ProjectId,
        now: Timestamp,
    ) -> BillingFuture<'a, Option<Date>>;

    /// Workspaces whose subscription has come to the end of a period; some of them, where there
    /// are many.
    fn due<'a>(&'a self, conn: &'a mut Conn, now: Timestamp)
    -> BillingFuture<'a, Vec<WorkspaceId>>;

    /// Renews the subscription of a workspace by one period, if it is due: charges the period, or
    /// ends a subscription that pays for nothing any more. False where nothing was due. However
    /// often and by however many it is asked, each period is charged once. The caller holds the
    /// workspace's lock.
    fn renew<'a>(
        &'a self,
        tx: &'a mut Tx,
        workspace: WorkspaceId,
        now: Timestamp,
    ) -> BillingFuture<'a, bool>;
}

/// What a billing provider answers later.
pub type BillingFuture<'a, T> = Pin<Box<dyn Future<Output = Answer<T>> + Send + 'a>>;

/// A project that a subscription pays for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Who pays.
    pub workspace: WorkspaceId,
    /// For which project.
    pub project: ProjectId,
    /// On which plan.
    pub plan: &'static str,
    /// Due at once, in the smallest unit of the currency.
    pub amount_now: i64,
    /// Due every month, in the smallest unit of the currency.
    pub monthly: i64,
    /// The first day that is not paid for, where another subscription has paid for the project.
    pub paid_until: Option<Date>,
}
