//! The offered plans as text, and the check of their confirmation (CP-4g). No I/O.

use std::fmt::Write as _;

use api::control::plans::{
    BillingImpact, Currency, Interval, Plan, PlanConfiguration, PlanOption, Provider,
};

use crate::failure::{Code, Failure};

/// A plan in a region, which a creation would confirm.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    /// The offered plan.
    pub(super) option: &'a PlanOption,
    /// The cloud provider.
    pub(super) provider: Provider,
    /// The region.
    pub(super) region: &'a str,
}

/// The next step towards a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CreationStep {
    /// The current offer was confirmed.
    Create,
    /// The user at the terminal must see the offer and decide.
    Confirm {
        /// True if a different offer was confirmed before.
        changed: bool,
    },
    /// A different offer was confirmed, and there is no terminal to ask at.
    Stale,
    /// No offer was confirmed, and there is no terminal to ask at.
    Unconfirmed,
}

/// CP-4g: an offer is only created if its own fingerprint was confirmed.
pub(super) fn next_step(offered: &str, confirmed: Option<&str>, can_ask: bool) -> CreationStep {
    match (confirmed, can_ask) {
        (Some(confirmed), _) if confirmed == offered => CreationStep::Create,
        (confirmed, true) => CreationStep::Confirm {
            changed: confirmed.is_some(),
        },
        (Some(_), false) => CreationStep::Stale,
        (None, false) => CreationStep::Unconfirmed,
    }
}

impl<'a> Choice<'a> {
    /// The requested choice. Missing parts default to the platform's recommendation, or else to the
    /// first or only option.
    pub(super) fn select(
        preview: &'a PlanConfiguration,
        plan: Option<Plan>,
        place: Option<&'a (Provider, String)>,
    ) -> Result<Self, Failure> {
        let recommended = preview.recommended.as_ref();
        let first = || preview.plans.iter().find(|option| option.available);
        let plan = plan
            .or_else(|| recommended.map(|choice| choice.plan))
            .or_else(|| first().map(|option| option.plan))
            .ok_or_else(|| Failure::new(Code::Failed, "no plan is available at the moment"))?;
        let option = preview
            .plans
            .iter()
            .find(|option| option.plan == plan)
            .ok_or_else(|| Failure::new(Code::Failed, format!("plan {plan} does not exist")))?;
        if !option.available {
            let reason = option.unavailable_reason.as_deref().unwrap_or_default();
            let message = format!("the plan {plan} is not available: {reason}");
            return Err(Failure::new(Code::NotAvailable, message)
                .hint("`svc project create --preview` shows the available plans"));
        }
        let regions: Vec<_> = option
            .providers
            .iter()
            .flat_map(|provider| {
                let whose = provider.provider;
                provider.regions.iter().map(move |region| (whose, region))
            })
            .collect();
        let found = match place {
            Some((provider, name)) => regions
                .iter()
                .find(|(whose, region)| whose == provider && region.region == *name),
            None => regions
                .iter()
                .find(|(_, region)| region.recommended)
                .or_else(|| regions.first().filter(|_| regions.len() == 1)),
        };
        let Some((provider, region)) = found else {
            let known: Vec<_> = regions
                .iter()
                .map(|(provider, region)| format!("{provider}/{}", region.region))
                .collect();
            let message = match place {
                Some((provider, name)) => {
                    format!("region {provider}/{name} does not exist for plan {plan}")
                }
                None => format!("plan {plan} is available in several regions"),
            };
            return Err(
                Failure::usage(message).hint(format!("choose with --region: {}", known.join(", ")))
            );
        };
        Ok(Self {
            option,
            provider: *provider,
            region: &region.region,
        })
    }

    /// Describes the offer that is about to be confirmed.
    pub(super) fn describe(&self, name: Option<&str>) -> String {
        let mut text = String::new();
        if let Some(name) = name {
            line(&mut text, "project", name);
        }
        describe(&mut text, self.option);
        line(
            &mut text,
            "region",
            &format!("{}/{}", self.provider, self.region),
        );
        text.trim_end().to_owned()
    }
}

/// Describes all offers.
pub(super) fn describe_all(preview: &PlanConfiguration) -> String {
    let mut text = String::new();
    for option in &preview.plans {
        describe(&mut text, option);
        if !option.available {
            text.push('\n');
            continue;
        }
        for provider in &option.providers {
            for region in &provider.regions {
                let nearest = if region.recommended {
                    " (recommended)"
                } else {
                    ""
                };
                let place = format!("{}/{}{nearest}", provider.provider, region.region);
                line(&mut text, "region", &place);
            }
        }
        line(&mut text, "fingerprint", &option.creation_fingerprint);
        text.push('\n');
    }
    text.trim_end().to_owned()
}

fn describe(text: &mut String, option: &PlanOption) {
    let plan = format!("{} ({}): {}", option.name, option.plan, option.description);
    line(text, "plan", &plan);
    if !option.available {
        let reason = option.unavailable_reason.as_deref().unwrap_or_default();
        line(text, "unavailable", reason);
        return;
    }
    let impact = &option.billing_impact;
    line(text, "price", &price(impact));
    let words = format!("{}. {}", impact.label, impact.description);
    line(text, "billing", &words);
    let action = &option.billing_action;
    let words = format!("{}. {}", action.label, action.description);
    line(text, "next step", &words);
}

pub(super) fn price(impact: &BillingImpact) -> String {
    let mut parts = Vec::new();
    if let Some(now) = impact.price {
        parts.push(format!("{} now", amount(now.amount_minor, now.currency)));
    }
    if let Some(recurring) = impact.recurring {
        let every = match recurring.interval {
            Interval::Month => "every month",
        };
        let each = amount(recurring.amount_minor, recurring.currency);
        parts.push(format!("{each} {every}"));
    }
    let mut text = if parts.is_empty() {
        "nothing".to_owned()
    } else {
        parts.join(", then ")
    };
    if let Some(before) = impact.compare_at_price {
        text.push_str(" instead of ");
        text.push_str(&amount(before.amount_minor, before.currency));
    }
    if let Some(promotion) = &impact.promotion {
        text.push_str(" (");
        text.push_str(promotion);
        text.push(')');
    }
    text
}

/// Formats an amount with the decimals of its currency (ISO 4217).
pub(super) fn amount(minor: i64, currency: Currency) -> String {
    let sign = if minor < 0 { "-" } else { "" };
    let minor = minor.unsigned_abs();
    match currency.as_str() {
        "JPY" | "KRW" | "VND" | "CLP" | "ISK" => format!("{sign}{minor} {currency}"),
        "BHD" | "KWD" | "OMR" | "TND" | "JOD" => {
            format!("{sign}{}.{:03} {currency}", minor / 1000, minor % 1000)
        }
        _ => format!("{sign}{}.{:02} {currency}", minor / 100, minor % 100),
    }
}

pub(super) fn line(text: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail. Control characters in foreign text could move the cursor, so
    // they are removed.
    let value: String = value.chars().filter(|c| !c.is_control()).collect();
    let _written = writeln!(text, "  {name:<12}{value}");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn preview(price: i64) -> PlanConfiguration {
        let region = |name: &str| json!({"region": name, "recommended": name == "b"});
        serde_json::from_value(json!({"plans": [
            {
                "plan": "basic", "name": "Basic", "description": "For one.", "available": true,
                "billingImpact": {"type": "none", "label": "No charge",
                    "description": "Nothing is charged.", "billingEnabled": true},
                "billingAction": {"type": "create", "label": "Create",
                    "description": "It is created at once.", "submitLabel": "Create project"},
                "providers": [{"provider": "aws", "regions": [region("a"), region("b")]}],
                "creationFingerprint": "basic-print",
            },
            {
                "plan": "pro", "name": "Pro", "description": "For teams.", "available": true,
                "billingImpact": {"type": "prorated_charge", "label": "Added",
                    "description": "The rest of the month at once.", "billingEnabled": true,
                    "price": {"amountMinor": 905, "currency": "EUR"},
                    "compareAtPrice": {"amountMinor": 2900, "currency": "EUR"},
                    "recurring": {"amountMinor": price, "currency": "EUR", "interval": "month"},
                    "promotion": "spring"},
                "billingAction": {"type": "update_subscription", "label": "Create and update",
                    "description": "It is added.", "submitLabel": "Confirm and create"},
                "providers": [{"provider": "gcp", "regions": [
                    {"region": "x", "recommended": false}, {"region": "y", "recommended": false}]}],
                "creationFingerprint": "pro-print",
            },
            {
                "plan": "enterprise", "name": "Enterprise", "description": "Yours.",
                "available": false, "unavailableReasonCode": "by_arrangement",
                "unavailableReason": "Sold by arrangement.",
                "billingImpact": {"type": "none", "label": "No charge",
                    "description": "Nothing is charged.", "billingEnabled": true},
                "billingAction": {"type": "create", "label": "Create",
                    "description": "It is created at once.", "submitLabel": "Create project"},
                "providers": [], "creationFingerprint": "enterprise-print",
            },
        ]}))
        .unwrap()
    }

    /// CP-4g: without a confirmation of exactly this offer nothing is created.
    #[test]
    fn cp_4g_only_a_confirmed_plan_is_created() {
        for can_ask in [false, true] {
            assert_eq!(next_step("new", Some("new"), can_ask), CreationStep::Create);
        }
        assert_eq!(
            next_step("new", None, true),
            CreationStep::Confirm { changed: false }
        );
        assert_eq!(
            next_step("new", Some("old"), true),
            CreationStep::Confirm { changed: true }
        );
        assert_eq!(next_step("new", Some("old"), false), CreationStep::Stale);
        assert_eq!(next_step("new", None, false), CreationStep::Unconfirmed);
        assert_eq!(next_step("new", Some(""), false), CreationStep::Stale);
    }

    /// CP-4g: plan, price, impact and action are all shown.
    #[test]
    fn cp_4g_the_impact_is_shown_in_words() {
        let preview = preview(1900);
        insta::assert_snapshot!(describe_all(&preview));
        let place = (Provider::Gcp, "x".to_owned());
        let choice = Choice::select(&preview, Some(Plan::Pro), Some(&place)).unwrap();
        insta::assert_snapshot!(choice.describe(Some("staging")));
    }

    #[test]
    fn missing_choices_are_recommended_or_required() {
        let preview = preview(1900);
        let choice = Choice::select(&preview, None, None).unwrap();
        assert_eq!(
            (choice.option.plan, choice.provider, choice.region),
            (Plan::Basic, Provider::Aws, "b")
        );
        let several = Choice::select(&preview, Some(Plan::Pro), None).unwrap_err();
        assert!(several.to_string().contains("gcp/x, gcp/y"), "{several}");
        let nowhere = (Provider::Gcp, "z".to_owned());
        let nowhere = Choice::select(&preview, Some(Plan::Pro), Some(&nowhere)).unwrap_err();
        assert!(nowhere.to_string().contains("gcp/z"), "{nowhere}");
        let closed = Choice::select(&preview, Some(Plan::Enterprise), None).unwrap_err();
        assert_eq!(closed.code(), Code::NotAvailable);
        assert!(closed.to_string().contains("by arrangement"), "{closed}");
    }

    #[test]
    fn amounts_have_the_decimals_of_their_currency() {
        let shown = |minor, code: &str| amount(minor, code.parse().unwrap());
        assert_eq!(shown(1905, "EUR"), "19.05 EUR");
        assert_eq!(shown(1905, "JPY"), "1905 JPY");
        assert_eq!(shown(1905, "KWD"), "1.905 KWD");
        assert_eq!(shown(-5, "EUR"), "-0.05 EUR");
    }
}
