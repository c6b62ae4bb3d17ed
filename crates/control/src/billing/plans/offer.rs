//! Offers: a plan of the catalogue for one workspace at one moment, and the list of them all.

use api::control::plans::{
    BillingAction, BillingActionKind, BillingImpact, BillingImpactKind, Interval, Plan,
    PlanConfiguration, PlanOption, Price, Provider, ProviderOption, RecommendedChoice,
    RecurringPrice, RegionOption, UnavailableReason,
};
use jiff::civil::Date;

use crate::billing::plans::catalogue::{Catalogue, PlanTerms, Region};
use crate::billing::plans::fingerprint::{Fingerprint, FingerprintKey};
use crate::billing::{Account, Decision, decide};

/// Remaining capacity of the catalogue.
#[derive(Clone, Debug, Default)]
pub struct Availability {
    /// Full regions: provider, region, plan.
    pub full: Vec<(Provider, String, Plan)>,
    /// Number of projects of the workspace on each plan. A plan that is not listed has none yet.
    pub in_workspace: Vec<(Plan, u64)>,
}

impl Availability {
    fn in_region(&self, region: &Region, plan: Plan) -> bool {
        !self
            .full
            .iter()
            .any(|(provider, name, full)| *full == plan && region.is_named(*provider, name))
    }

    fn in_workspace(&self, plan: Plan, terms: &PlanTerms) -> bool {
        let used = self.in_workspace.iter().find(|(known, _)| *known == plan);
        let used = used.map_or(0, |(_, used)| *used);
        terms
            .projects_per_workspace
            .is_none_or(|limit| used < u64::from(limit))
    }
}

/// The offer of one plan to one workspace.
#[derive(Clone, Debug)]
pub struct Offer<'a> {
    /// The plan.
    pub plan: Plan,
    /// Its terms.
    pub terms: &'a PlanTerms,
    /// Effect of choosing it on the account.
    pub decision: Decision,
    /// Reason that it cannot be chosen.
    pub unavailable: Option<UnavailableReason>,
    /// Regions with capacity for it, in the order of the catalogue.
    pub regions: Vec<&'a Region>,
    /// Revision of the account that the decision is based on.
    revision: u64,
    catalogue: &'a Catalogue,
}

/// Computes the offer of a plan. The same inputs give the same offer. The preview and the creation
/// that confirms it both use this function.
pub fn offer<'a>(
    catalogue: &'a Catalogue,
    plan: Plan,
    account: &Account,
    availability: &Availability,
    today: Date,
) -> Offer<'a> {
    let terms = catalogue.terms(plan);
    let decision = decide(terms, account, today);
    let regions: Vec<_> = catalogue
        .regions()
        .iter()
        .filter(|region| region.plans.contains(&plan) && availability.in_region(region, plan))
        .collect();
    let unavailable = if terms.by_arrangement {
        Some(UnavailableReason::ByArrangement)
    } else if !catalogue.server_confirmed_creation
        && account.subscription.is_some()
        && terms.monthly > 0
    {
        // CP-4f. A payment setup would end in an update as well.
        Some(UnavailableReason::ServerConfirmationDisabled)
    } else if !catalogue.hosted_checkout && matches!(decision, Decision::Checkout { .. }) {
        Some(UnavailableReason::CheckoutDisabled)
    } else if !availability.in_workspace(plan, terms) {
        Some(UnavailableReason::ProjectLimit)
    } else if regions.is_empty() {
        Some(UnavailableReason::NoCapacity)
    } else {
        None
    };
    Offer {
        plan,
        terms,
        decision,
        unavailable,
        regions,
        revision: account.revision,
        catalogue,
    }
}

/// Every offer to the workspace, in the form of the response (CP-3).
///
/// `nearest` is the region nearest to the caller, if it is known.
pub fn configuration(
    offers: &[Offer<'_>],
    nearest: impl Fn(&[&Region]) -> Option<(Provider, String)>,
    workspace: &str,
    key: &FingerprintKey,
) -> PlanConfiguration {
    let mut recommended = None;
    let mut plans = Vec::with_capacity(offers.len());
    for offer in offers {
        let nearest = nearest(&offer.regions);
        if offer.unavailable.is_none()
            && recommended.is_none()
            && let Some((provider, region)) = &nearest
        {
            // The first plan that can be chosen, because the plans are in the order of their price.
            recommended = Some(RecommendedChoice {
                plan: offer.plan,
                provider: *provider,
                region: region.clone(),
            });
        }
        plans.push(offer.plan_view(nearest.as_ref(), workspace, key));
    }
    PlanConfiguration { plans, recommended }
}

impl Offer<'_> {
    /// The region, if it is among those offered.
    pub fn region(&self, provider: Provider, region: &str) -> Option<&Region> {
        self.regions
            .iter()
            .copied()
            .find(|offered| offered.is_named(provider, region))
    }

    /// Reason that a workspace cannot take over an existing project of this plan. Only limits of
    /// the workspace and its account count, because the project already has its capacity.
    pub fn takeover_refused(&self) -> Option<UnavailableReason> {
        self.unavailable.filter(|reason| match reason {
            UnavailableReason::ServerConfirmationDisabled | UnavailableReason::ProjectLimit => true,
            UnavailableReason::NoCapacity
            | UnavailableReason::ByArrangement
            | UnavailableReason::CheckoutDisabled => false,
        })
    }

    /// The fingerprint of the offer. It covers the data that the caller is shown and the decision
    /// of the server (CP-4b).
    pub fn fingerprint(&self, workspace: &str, key: &FingerprintKey) -> Fingerprint {
        // The recommendation is the only shown value that is not bound. It is not part of the
        // offer. A caller whose address changes (a phone, or IPv4 after IPv6) would otherwise get
        // stale previews repeatedly.
        key.sign(workspace, &self.option(None), &self.decision, self.revision)
    }

    fn plan_view(
        &self,
        nearest: Option<&(Provider, String)>,
        workspace: &str,
        key: &FingerprintKey,
    ) -> PlanOption {
        PlanOption {
            creation_fingerprint: self.fingerprint(workspace, key).to_string(),
            ..self.option(nearest)
        }
    }

    fn option(&self, nearest: Option<&(Provider, String)>) -> PlanOption {
        PlanOption {
            plan: self.plan,
            name: self.terms.name.clone(),
            description: self.terms.description.clone(),
            available: self.unavailable.is_none(),
            unavailable_reason_code: self.unavailable,
            unavailable_reason: self.unavailable.map(|reason| explain(reason).to_owned()),
            billing_impact: self.impact(),
            billing_action: action(self.decision.action()),
            providers: self.providers(nearest),
            creation_fingerprint: String::new(),
        }
    }

    fn providers(&self, nearest: Option<&(Provider, String)>) -> Vec<ProviderOption> {
        let mut providers: Vec<ProviderOption> = Vec::new();
        for region in &self.regions {
            let option = RegionOption {
                region: region.region.clone(),
                recommended: nearest
                    .is_some_and(|(provider, name)| region.is_named(*provider, name)),
            };
            let known = providers
                .iter_mut()
                .find(|known| known.provider == region.provider);
            match known {
                Some(known) => known.regions.push(option),
                None => providers.push(ProviderOption {
                    provider: region.provider,
                    regions: vec![option],
                }),
            }
        }
        providers
    }

    /// Cost of choosing it.
    pub fn impact(&self) -> BillingImpact {
        let currency = self.catalogue.currency;
        let price = |amount_minor| Price {
            amount_minor,
            currency,
        };
        let recurring = |amount_minor| RecurringPrice {
            amount_minor,
            currency,
            interval: Interval::Month,
        };
        let (kind, label, description, now, monthly) = match &self.decision {
            Decision::Free => (
                BillingImpactKind::None,
                "No charge",
                "This project is free of charge.",
                None,
                None,
            ),
            Decision::Checkout { monthly } => (
                BillingImpactKind::NewCharge,
                "New subscription",
                "A subscription starts; the first month is charged immediately.",
                Some(*monthly),
                Some(*monthly),
            ),
            Decision::Update { now, monthly, .. } | Decision::Setup { now, monthly } => (
                BillingImpactKind::ProratedCharge,
                "Added to the subscription",
                "The rest of the current month is charged immediately, later months in full.",
                Some(*now),
                Some(*monthly),
            ),
        };
        BillingImpact {
            kind,
            label: label.to_owned(),
            description: description.to_owned(),
            billing_enabled: self.catalogue.billing_enabled(),
            price: now.map(price),
            compare_at_price: monthly.and(self.terms.compare_at).map(price),
            recurring: monthly.map(recurring),
            promotion: monthly.and_then(|_| self.terms.promotion.clone()),
        }
    }
}

fn action(kind: BillingActionKind) -> BillingAction {
    let (label, description, submit_label) = match kind {
        BillingActionKind::Create => (
            "Create",
            "The project is created immediately.",
            "Create project",
        ),
        BillingActionKind::UpdateSubscription => (
            "Create and update the subscription",
            "The project is created and added to the subscription of the workspace.",
            "Confirm and create",
        ),
        BillingActionKind::Checkout => (
            "Check out",
            "A first payment is required; you make it on a page of this platform.",
            "Continue to checkout",
        ),
        BillingActionKind::BillingSetup => (
            "Set up billing",
            "The subscription of the workspace cannot be charged; set up its billing first.",
            "Set up billing",
        ),
    };
    BillingAction {
        kind,
        label: label.to_owned(),
        description: description.to_owned(),
        submit_label: submit_label.to_owned(),
    }
}

/// Reason that a plan cannot be chosen, for users.
pub(crate) fn explain(reason: UnavailableReason) -> &'static str {
    match reason {
        UnavailableReason::NoCapacity => "No region has room for this plan at the moment.",
        UnavailableReason::ByArrangement => "This plan is sold by arrangement with the operator.",
        UnavailableReason::ServerConfirmationDisabled => {
            "This plan would change the subscription, which cannot be confirmed with this \
             credential."
        }
        UnavailableReason::CheckoutDisabled => {
            "This plan requires a first payment, and no checkout is configured."
        }
        UnavailableReason::ProjectLimit => {
            "The workspace has reached its limit of projects with this plan."
        }
    }
}

#[cfg(test)]
mod tests;
