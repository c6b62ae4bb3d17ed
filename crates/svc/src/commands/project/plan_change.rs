//! `svc project plan --change`: preview, confirm, change (CP-4g).
//!
//! As for a creation, no flag confirms an unknown price: a user answers a question below the
//! preview, and a script repeats its fingerprint.

use std::fmt::Write as _;

use api::control::{
    plan_change::{CHANGE, ChangePlan, LimitChange, PREVIEW, PlanChange, PlanLimit},
    plans::Plan,
    projects::Project,
};
use clap::Args;
use serde_json::json;

use super::{create, offer};
use crate::failure::{Code, Failure};
use crate::output::{self, Format};
use crate::platform::Session;
use crate::prompt;

/// The flags that change the plan.
#[derive(Debug, Args)]
pub(super) struct ChangeArgs {
    /// Change to this plan (shows the price and the limits and asks first)
    #[arg(long, value_name = "PLAN", value_parser = create::plan)]
    pub(super) change: Option<Plan>,

    /// Only show the effects of the change
    #[arg(long, requires = "change", conflicts_with = "confirm")]
    preview: bool,

    /// Change without a question, if the preview still has this fingerprint
    // One in 64 fingerprints starts with a dash.
    #[arg(
        long,
        value_name = "FINGERPRINT",
        requires = "change",
        allow_hyphen_values = true
    )]
    confirm: Option<String>,
}

/// Shows the effects, asks for confirmation and changes the plan.
pub(super) async fn run(
    args: ChangeArgs,
    to: Plan,
    (session, project, format): (&Session, &Project, Format),
) -> Result<(), Failure> {
    if project.plan == to {
        output::message(&format!("the project already has the plan {to}"));
        return super::show(format, project);
    }
    let call = session.platform.call(PREVIEW, &[&project.id]);
    let call = call.query("plan", Some(to.as_str()));
    let preview: PlanChange = call.answer().await?;
    if args.preview {
        return match format {
            Format::Json => output::json(&preview),
            Format::Text => output::line(&describe(&preview)),
        };
    }
    let fingerprint = &preview.change_fingerprint;
    if args.confirm.as_ref() != Some(fingerprint) {
        output::message(&describe(&preview));
        if !preview.available {
            let reason = preview.unavailable_reason.unwrap_or_default();
            return Err(Failure::new(Code::Conflict, reason));
        }
        let hint = format!("to confirm the change above, use --confirm {fingerprint}");
        if args.confirm.is_some() {
            let message = "the preview is not the one that was confirmed; nothing was changed";
            return Err(Failure::new(Code::Conflict, message).hint(hint));
        }
        if !prompt::is_possible() {
            let message = "cannot ask for confirmation: not a terminal";
            return Err(Failure::usage(message).hint(hint));
        }
        if !prompt::confirm(&format!("Change the plan to {to}?"))? {
            return Err(Failure::new(Code::Failed, "nothing was changed"));
        }
    }
    let body = ChangePlan {
        plan: to,
        change_fingerprint: fingerprint.clone(),
    };
    let call = session.platform.call(CHANGE, &[&project.id]).body(&body)?;
    match call.repeatable().answer::<Project>().await {
        Ok(changed) => super::show(format, &changed),
        Err(error) => {
            let refusal = error.refusal("payment_required");
            let Some(url) = refusal.and_then(|refusal| refusal.url.clone()) else {
                return Err(error.into());
            };
            match format {
                Format::Json => output::json(&json!({"status": "payment_required", "url": url}))?,
                Format::Text => output::line(&url)?,
            }
            let message = "billing must be set up on a page of the platform; nothing was changed";
            Err(Failure::new(Code::Failed, message).hint("open the address above, then try again"))
        }
    }
}

/// Describes the change that is about to be confirmed.
fn describe(preview: &PlanChange) -> String {
    let mut text = String::new();
    let plans = format!("{} instead of {}, immediately", preview.to, preview.from);
    offer::line(&mut text, "plan", &plans);
    if let Some(reason) = &preview.unavailable_reason {
        offer::line(&mut text, "unavailable", reason);
    }
    let impact = &preview.billing_impact;
    offer::line(&mut text, "price", &offer::price(impact));
    let words = format!("{}. {}", impact.label, impact.description);
    offer::line(&mut text, "billing", &words);
    if let Some(day) = &preview.renews_on {
        offer::line(&mut text, "next month", &format!("starts on {day}"));
    }
    if let Some(url) = &preview.setup_url {
        offer::line(&mut text, "first", &format!("set up billing at {url}"));
    }
    for limit in &preview.limits {
        offer::line(&mut text, "limit", &limit_text(limit));
    }
    offer::line(&mut text, "fingerprint", &preview.change_fingerprint);
    text.trim_end().to_owned()
}

/// For example `domains: 10 instead of 100 (12 used): remove the excess first`.
fn limit_text(limit: &LimitChange) -> String {
    let value = |value: Option<u64>| match (limit.limit, value) {
        (PlanLimit::Webhooks, Some(0)) => "not included".to_owned(),
        (PlanLimit::Webhooks, None) => "included".to_owned(),
        (_, Some(number)) => number.to_string(),
        (_, None) => "no limit".to_owned(),
    };
    let name = limit.limit.as_str().replace('_', " ");
    let mut text = format!(
        "{name}: {} instead of {}",
        value(limit.to),
        value(limit.from)
    );
    // Writing to a string cannot fail.
    if let Some(used) = limit.used {
        let _written = write!(text, " ({used} used)");
    }
    let effect = limit.effect.text();
    if !effect.is_empty() {
        let _written = write!(text, ": {effect}");
    }
    text
}

#[cfg(test)]
mod tests {
    use api::control::plan_change::LimitEffect;

    use super::*;

    #[test]
    fn a_lower_limit_is_shown_with_its_use_and_effect() {
        let domains = LimitChange {
            limit: PlanLimit::Domains,
            from: Some(100),
            to: Some(10),
            used: Some(12),
            effect: LimitEffect::RemoveFirst,
        };
        assert_eq!(
            limit_text(&domains),
            "domains: 10 instead of 100 (12 used): remove the excess first"
        );
        let agents = LimitChange {
            limit: PlanLimit::Agents,
            from: Some(100),
            to: None,
            used: None,
            effect: LimitEffect::None,
        };
        assert_eq!(limit_text(&agents), "agents: no limit instead of 100");
    }
}
