//! What a workspace pays: its subscription, and its invoices.

use serde::{Deserialize, Serialize};
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::people::{PAGE, PAGE_SIZE};
use super::plans::{Plan, Price};
use super::{Access, Operation, Paging, Schemas, add};

/// How the workspace stands.
pub const GET: &Operation = &Operation {
    refusals: &[404, 503],
    ..Operation::get(
        "get_workspace_billing",
        "/api/workspaces/{workspace_id}/billing",
        "Read the subscription of a workspace",
        READ,
        "WorkspaceBilling",
    )
};

/// What was charged, newest first.
pub const LIST_INVOICES: &Operation = &Operation {
    query: &[PAGE, PAGE_SIZE],
    refusals: &[400, 404, 503],
    ..Operation::get(
        "list_workspace_invoices",
        "/api/workspaces/{workspace_id}/billing/invoices",
        "List the invoices of a workspace",
        READ,
        "InvoiceList",
    )
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[GET, LIST_INVOICES];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<WorkspaceBilling>(schemas);
    add::<InvoiceList>(schemas);
}

const READ: Access = Access::Permitted(
    Permission::AccountPlanReadOnly,
    &[Rule {
        resource: "plan",
        actions: &["read"],
    }],
);

/// How a workspace stands with billing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceBilling {
    /// Whether there is a means of payment on file.
    pub has_payment_method: bool,
    /// What is paid for every month; absent where nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subscription: Option<SubscriptionView>,
}

/// What a workspace pays for, month by month.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Subscription)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionView {
    #[schema(example = "sub_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// `active`, or `past_due` where a payment is overdue.
    #[schema(example = "active")]
    pub status: String,
    /// What a month costs now.
    pub monthly: Price,
    /// The projects that are paid for.
    pub items: Vec<SubscriptionItem>,
    /// When it began; each month of it begins on that day.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// When the running month ends and the next one is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub renews_at: Option<String>,
}

/// One project of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionItem {
    pub project_id: String,
    pub plan: Plan,
    /// What it costs in a month.
    pub monthly: Price,
}

/// A page of invoices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InvoiceList {
    pub invoices: Vec<InvoiceView>,
    #[serde(flatten)]
    pub paging: Paging,
}

/// An invoice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Invoice)]
#[serde(rename_all = "camelCase")]
pub struct InvoiceView {
    #[schema(example = "inv_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    pub subscription_id: String,
    /// `open` or `paid`.
    #[schema(example = "open")]
    pub status: String,
    /// The whole.
    pub total: Price,
    pub lines: Vec<InvoiceLine>,
    /// Beginning of what is paid for.
    #[schema(format = DateTime)]
    pub period_start: String,
    /// End of what is paid for; not in it.
    #[schema(format = DateTime)]
    pub period_end: String,
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// One line of an invoice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InvoiceLine {
    pub project_id: String,
    pub plan: Plan,
    pub price: Price,
}
