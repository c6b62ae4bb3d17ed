//! Change of a project's plan: a preview, and the change that confirms it.

use serde::{Deserialize, Serialize};
use serde_json::json;
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::plans::{BillingImpact, Plan, UnavailableReason};
use super::{Access, Body, Method, Operation, Parameter, Schemas, SuccessResponse, add};

/// Shows the effects of another plan on a project.
pub const PREVIEW: &Operation = &Operation {
    query: &[Parameter::one_of(
        "plan",
        "The plan that the project would have.",
        &["basic", "pro", "enterprise"],
    )
    .required()],
    refusals: &[409],
    ..Operation::get(
        "preview_tunnels_project_plan_change",
        "/api/projects/tunnels/{project_id}/plan-change",
        "Preview the change of a project's plan",
        Access::Permitted(
            Permission::AccountPlanReadOnly,
            &[Rule {
                resource: "plan",
                actions: &["read"],
            }],
        ),
        "PlanChange",
    )
};

/// Changes the plan as it was previewed. A project that already has the plan stays as it is.
pub const CHANGE: &Operation = &Operation {
    body: Some(Body::required("ChangePlan", || {
        json!({
            "plan": "pro",
            "changeFingerprint": "qk6nq1v0r1cY3yW5c1mVb3x2D8r4m2X0hA7uXjvQdZk",
        })
    })),
    refusals: &[402, 409],
    ..Operation::new(
        "change_tunnels_project_plan",
        Method::Post,
        "/api/projects/tunnels/{project_id}/plan-change",
        "Change the plan of a project as previewed",
        Access::Permitted(
            Permission::AccountProjectsReadWrite,
            &[Rule {
                resource: "projects",
                actions: &["update"],
            }],
        ),
        SuccessResponse::json(200, "Project"),
    )
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[PREVIEW, CHANGE];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<PlanChange>(schemas);
    add::<ChangePlan>(schemas);
}

/// Effects of another plan on a project. The plan applies immediately after its confirmation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanChange {
    /// The project.
    #[schema(example = "prj_01h455vb4pex5vsknk084sn02q")]
    pub project_id: String,
    /// The current plan.
    pub from: Plan,
    /// The new plan.
    pub to: Plan,
    /// True if the plan can be chosen now.
    pub available: bool,
    /// Reason code if the plan cannot be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub unavailable_reason_code: Option<UnavailableReason>,
    /// Reason as display text if the plan cannot be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub unavailable_reason: Option<String>,
    /// Cost of the change.
    pub billing_impact: BillingImpact,
    /// The page that sets up billing, if this is required first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub setup_url: Option<String>,
    /// The first day that is charged at the new price in full (UTC); absent without a subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "2026-05-01")]
    pub renews_on: Option<String>,
    /// The limits that differ.
    pub limits: Vec<LimitChange>,
    /// Fingerprint of this preview, which the change repeats as confirmation.
    pub change_fingerprint: String,
}

/// A limit that differs between two plans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitChange {
    /// The limit.
    pub limit: PlanLimit,
    /// Value in the current plan; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub from: Option<u64>,
    /// Value in the new plan; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub to: Option<u64>,
    /// Current use, for what the platform stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub used: Option<u64>,
    /// Effect on what is in use.
    pub effect: LimitEffect,
}

/// A limit of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanLimit {
    /// Connected agents.
    Agents,
    /// Online tunnels.
    Tunnels,
    /// Requests and connections of visitors per second, over all tunnels.
    RequestsPerSecond,
    /// Requests and connections of visitors per second, to one tunnel.
    TunnelRequestsPerSecond,
    /// Bytes per second in each direction, over all tunnels.
    BytesPerSecond,
    /// Bytes per second in each direction, of one tunnel.
    TunnelBytesPerSecond,
    /// Days that logs and events are kept.
    LogRetentionDays,
    /// Webhooks; 0: not included.
    Webhooks,
    /// Reserved TCP addresses.
    TcpAddresses,
    /// Custom domains.
    Domains,
}

impl PlanLimit {
    /// Name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Tunnels => "tunnels",
            Self::RequestsPerSecond => "requests_per_second",
            Self::TunnelRequestsPerSecond => "tunnel_requests_per_second",
            Self::BytesPerSecond => "bytes_per_second",
            Self::TunnelBytesPerSecond => "tunnel_bytes_per_second",
            Self::LogRetentionDays => "log_retention_days",
            Self::Webhooks => "webhooks",
            Self::TcpAddresses => "tcp_addresses",
            Self::Domains => "domains",
        }
    }
}

/// Effect of another limit on what is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitEffect {
    /// Nothing in use is affected.
    None,
    /// Objects above the limit keep working; more is refused, also when it reconnects.
    RefusesMore,
    /// Traffic above the limit is slowed down or refused.
    Slows,
    /// It applies to new logs and events; stored ones keep their period.
    NewOnly,
    /// The change is refused until the excess is removed.
    RemoveFirst,
}

impl LimitEffect {
    /// The effect as display text; empty if there is none.
    pub const fn text(self) -> &'static str {
        match self {
            Self::None => "",
            Self::RefusesMore => "what exists keeps working, more is refused",
            Self::Slows => "traffic above it is slowed down or refused",
            Self::NewOnly => "applies to new entries, stored ones keep their period",
            Self::RemoveFirst => "remove the excess first",
        }
    }
}

/// A confirmed change of the plan. No member selects a payment method: unknown members are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangePlan {
    /// The new plan.
    pub plan: Plan,
    /// The confirmed fingerprint, from the preview.
    #[schema(min_length = 1, max_length = 128)]
    pub change_fingerprint: String,
}
