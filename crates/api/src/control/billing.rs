//! Billing of a workspace: its subscription and its invoices.

use serde::{Deserialize, Serialize};
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::plans::{Plan, Price};
use super::{Access, Operation, PAGE, PAGE_SIZE, Schemas, add, page};

/// The billing status of the workspace.
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

/// Invoices of the workspace, newest first.
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

/// Billing status of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceBilling {
    /// True if a payment method is on file.
    pub has_payment_method: bool,
    /// The monthly subscription; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subscription: Option<SubscriptionView>,
}

/// The monthly subscription of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Subscription)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionView {
    #[schema(example = "sub_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// `active`, or `past_due` if a payment is overdue.
    #[schema(example = "active")]
    pub status: String,
    /// Current price per month.
    pub monthly: Price,
    /// The projects covered by the subscription.
    pub items: Vec<SubscriptionItem>,
    /// Start of the subscription; each billing month starts on that day.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// End of the current billing month, when the next one is charged.
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
    /// Price per month.
    pub monthly: Price,
}

page! {
    /// A page of invoices.
    #[derive(PartialEq, Eq)]
    pub struct InvoiceList {
        pub invoices: Vec<InvoiceView>,
        pub paging: Paging,
    }
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
    /// Total amount.
    pub total: Price,
    pub lines: Vec<InvoiceLine>,
    /// Start of the billed period.
    #[schema(format = DateTime)]
    pub period_start: String,
    /// End of the billed period (exclusive).
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
