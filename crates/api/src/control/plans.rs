//! Plan configuration: the plans that a workspace may use, their regions, and their prices (CP-3).

use serde::{Deserialize, Serialize};
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::{Access, Operation, Schemas, add};

/// The plans and regions available for a new project, with prices for this workspace (CP-3).
pub const PLAN_CONFIGURATION: &Operation = &Operation {
    stable: true,
    ..Operation::get(
        "get_tunnels_plan_configuration",
        "/api/workspaces/{workspace_id}/projects/tunnels/plan/config",
        "Preview the price of a project and its available regions",
        Access::Permitted(
            Permission::AccountPlanReadOnly,
            &[Rule {
                resource: "plan",
                actions: &["read"],
            }],
        ),
        "PlanConfiguration",
    )
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[PLAN_CONFIGURATION];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<PlanConfiguration>(schemas);
}

/// A plan of the catalogue.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Plan {
    /// The free plan.
    Basic,
    /// The usual plan for teams.
    Pro,
    /// The plan sold by arrangement.
    Enterprise,
}

impl Plan {
    /// Every plan, in display order.
    pub const ALL: [Self; 3] = [Self::Basic, Self::Pro, Self::Enterprise];

    /// Name on the wire and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Pro => "pro",
            Self::Enterprise => "enterprise",
        }
    }
}

/// Provider of the machines of a region.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Amazon Web Services.
    Aws,
    /// Google Cloud.
    Gcp,
    /// Microsoft Azure.
    Azure,
    /// The operator's own machines.
    Onpremise,
    /// Any other provider.
    Other,
}

impl Provider {
    /// Every provider.
    pub const ALL: [Self; 5] = [
        Self::Aws,
        Self::Gcp,
        Self::Azure,
        Self::Onpremise,
        Self::Other,
    ];

    /// Name on the wire and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Gcp => "gcp",
            Self::Azure => "azure",
            Self::Onpremise => "onpremise",
            Self::Other => "other",
        }
    }
}

macro_rules! words {
    ($($name:ident)*) => {$(
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = UnknownWord;

            fn from_str(given: &str) -> Result<Self, UnknownWord> {
                Self::ALL.into_iter().find(|word| word.as_str() == given).ok_or(UnknownWord)
            }
        }
    )*};
}

words! { Plan Provider }

/// A word that is not in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWord;

impl std::fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a word that the catalogue does not have")
    }
}

impl std::error::Error for UnknownWord {}

/// The plans for a new project of the workspace, each with its fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanConfiguration {
    /// Every plan of the catalogue, including plans that cannot be chosen.
    pub plans: Vec<PlanOption>,
    /// The choice nearest to the caller; absent if the caller's location is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub recommended: Option<RecommendedChoice>,
}

/// One plan, priced for one workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanOption {
    /// The plan.
    pub plan: Plan,
    /// Display name.
    pub name: String,
    /// Purpose of the plan, as display text.
    pub description: String,
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
    /// Cost of the choice.
    pub billing_impact: BillingImpact,
    /// The required billing step. The server decides it, never the caller (CP-4c).
    pub billing_action: BillingAction,
    /// Providers and regions for the plan. A region without capacity is not listed.
    pub providers: Vec<ProviderOption>,
    /// Fingerprint of this option, which the creation request repeats as confirmation.
    pub creation_fingerprint: String,
}

/// Reason why a plan cannot be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnavailableReason {
    /// No region of the plan has capacity.
    NoCapacity,
    /// The plan is sold by arrangement with the operator.
    ByArrangement,
    /// The plan would update a subscription, and this installation does not confirm that on the
    /// server (CP-4f).
    ServerConfirmationDisabled,
    /// The plan needs a first payment, and this installation has no hosted checkout.
    CheckoutDisabled,
    /// The workspace has reached its limit of projects of the plan.
    ProjectLimit,
}

/// Cost of a creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BillingImpact {
    /// The kind.
    #[serde(rename = "type")]
    pub kind: BillingImpactKind,
    /// Short display text.
    pub label: String,
    /// Display text of one sentence.
    pub description: String,
    /// True if this installation charges at all.
    pub billing_enabled: bool,
    /// Amount due now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub price: Option<Price>,
    /// The price before a reduction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub compare_at_price: Option<Price>,
    /// Amount due in every period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub recurring: Option<RecurringPrice>,
    /// Reason for the price reduction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub promotion: Option<String>,
}

/// Kind of a billing impact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BillingImpactKind {
    /// Nothing is charged.
    None,
    /// A new subscription starts.
    NewCharge,
    /// The subscription grows; the remainder of its period is charged pro rata.
    ProratedCharge,
}

/// The required billing step of a creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BillingAction {
    /// The kind.
    #[serde(rename = "type")]
    pub kind: BillingActionKind,
    /// Short display text.
    pub label: String,
    /// Display text of one sentence.
    pub description: String,
    /// Label of the button that confirms the creation.
    pub submit_label: String,
}

/// Kind of a billing action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BillingActionKind {
    /// The creation route creates it; nothing is charged.
    Create,
    /// The creation route creates it and updates the subscription (CP-4e).
    UpdateSubscription,
    /// A hosted payment is required first (CP-4d).
    Checkout,
    /// The workspace has to set up billing first (CP-4d).
    BillingSetup,
}

/// An amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Price {
    /// In the smallest unit of the currency, for example cents.
    pub amount_minor: i64,
    /// The currency.
    pub currency: Currency,
}

/// An amount of money for each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecurringPrice {
    /// In the smallest unit of the currency, for example cents.
    pub amount_minor: i64,
    /// The currency.
    pub currency: Currency,
    /// The period.
    pub interval: Interval,
}

/// Period of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Interval {
    /// A calendar month.
    Month,
}

/// A currency by its code of three capital letters (ISO 4217).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Currency([u8; 3]);

impl Currency {
    /// The code.
    pub fn as_str(&self) -> &str {
        // The constructor accepts only capital letters.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl std::str::FromStr for Currency {
    type Err = UnknownWord;

    fn from_str(given: &str) -> Result<Self, UnknownWord> {
        let code: [u8; 3] = given.as_bytes().try_into().map_err(|_| UnknownWord)?;
        if code.iter().all(u8::is_ascii_uppercase) {
            Ok(Self(code))
        } else {
            Err(UnknownWord)
        }
    }
}

impl std::fmt::Debug for Currency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::fmt::Display for Currency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Currency {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        given.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Currency {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        utoipa::openapi::schema::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::SchemaType::Type(
                utoipa::openapi::schema::Type::String,
            ))
            .pattern(Some("^[A-Z]{3}$"))
            .description(Some("A currency as a code of three capital letters."))
            .into()
    }
}

impl ToSchema for Currency {}

/// The regions of one provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderOption {
    /// The provider.
    pub provider: Provider,
    /// Its regions that have capacity.
    pub regions: Vec<RegionOption>,
}

/// One region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegionOption {
    /// Name of the region.
    pub region: String,
    /// True if the region is the nearest to the caller, as far as the location is known.
    pub recommended: bool,
}

/// A choice that fits the caller's location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecommendedChoice {
    /// The plan.
    pub plan: Plan,
    /// The provider.
    pub provider: Provider,
    /// The region.
    pub region: String,
}
