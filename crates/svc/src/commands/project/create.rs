//! `svc project create`: preview, confirm, create (CP-4g).
//!
//! Nothing is created that was not seen: a person answers a question under the billing impact, a
//! program repeats the fingerprint that stands for it. There is no flag that says yes to whatever
//! it may cost.

use api::control::{
    plans::{PLAN_CONFIGURATION, Plan, PlanConfiguration, Provider},
    projects::{CREATE, CreateProject, Placement, Project},
};
use clap::Parser;
use serde_json::json;

use super::offer::{self, Choice, Step};
use crate::{
    failure::{Code, Failure},
    output,
    output::Format,
    platform::{PlatformError, Session, SessionFlags},
    prompt, random,
};

/// The flags of `svc project create`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc project create staging --plan basic
  svc project create --preview --output json        what a program looks at first
  svc project create staging --plan basic --confirm <creationFingerprint>")]
pub(crate) struct CreateArgs {
    /// The name
    #[arg(required_unless_present = "preview")]
    name: Option<String>,

    /// The plan; without it, the recommended or the first one that is available
    #[arg(long, value_parser = plan)]
    plan: Option<Plan>,

    /// Where it stands; without it, the recommended or the only region of the plan
    #[arg(long, value_name = "PROVIDER/REGION", value_parser = region)]
    region: Option<(Provider, String)>,

    /// The workspace: id or name
    #[arg(long, value_name = "WORKSPACE")]
    workspace: Option<String>,

    /// Only show what could be created, and what it would cost
    #[arg(long, conflicts_with = "confirm")]
    preview: bool,

    /// Create without asking what a preview with this fingerprint showed
    // One in 64 fingerprints begins with a dash.
    #[arg(long, value_name = "FINGERPRINT", allow_hyphen_values = true)]
    confirm: Option<String>,

    /// Refused: see --confirm
    #[arg(long, short = 'y', hide = true)]
    yes: bool,

    /// How it is written
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// Shows the impact, has it confirmed, creates.
pub(super) async fn run(args: CreateArgs) -> Result<(), Failure> {
    if args.yes {
        return Err(Failure::usage("--yes would confirm a cost that nobody saw")
            .hint("`svc project create --preview` shows it; pass its fingerprint with --confirm"));
    }
    let session = args.flags.open()?;
    let workspace = session.workspace(args.workspace.as_deref()).await?.id;
    let mut preview = look(&session, &workspace).await?;
    if args.preview {
        return match args.output {
            Format::Json => output::json(&preview),
            Format::Text => output::line(&offer::describe_all(&preview)),
        };
    }
    let name = args.name.as_deref().unwrap_or_default();
    // One key for what the person wants once, however often the network makes us ask.
    let key = random::hex::<KEY_BYTES>()?;
    let mut confirmed = args.confirm.clone();
    for _ in 0..MAX_PREVIEWS {
        let wanted = args.region.as_ref();
        let choice = Choice::of(&preview, args.plan, wanted)?;
        let fingerprint = choice.option.creation_fingerprint.clone();
        match offer::next_step(&fingerprint, confirmed.as_deref(), prompt::is_possible()) {
            Step::Create => {}
            Step::Ask { changed } => {
                if changed {
                    output::message("The offer has changed since it was confirmed.");
                }
                output::message(&choice.describe(Some(name)));
                let question = format!("{}?", choice.option.billing_action.submit_label);
                if !prompt::confirm(&question)? {
                    return Err(Failure::new(Code::Failed, "nothing was created"));
                }
                confirmed = Some(fingerprint.clone());
            }
            Step::Stale => {
                output::message(&choice.describe(Some(name)));
                return Err(Failure::new(
                    Code::Conflict,
                    "the offer is not the one that was confirmed; nothing was created",
                )
                .hint(format!(
                    "the one above is confirmed with --confirm {fingerprint}"
                )));
            }
            Step::Unconfirmed => {
                output::message(&choice.describe(Some(name)));
                return Err(Failure::usage(
                    "cannot ask for confirmation: not a terminal",
                )
                .hint(format!(
                    "the offer above is confirmed with --confirm {fingerprint}; programs find it \
                     with --preview --output json"
                )));
            }
        }
        let body = CreateProject {
            name: name.to_owned(),
            plan: choice.option.plan,
            provider: choice.provider,
            region: choice.region.to_owned(),
            routing: Placement::Regional,
            creation_fingerprint: fingerprint,
            idempotency_key: key.clone(),
        };
        match order(&session, &workspace, &body).await {
            Ok(project) => return super::show(args.output, &project),
            // CP-4b: what was confirmed is no longer so; it is shown and asked again.
            Err(error) if error.refusal("creation_preview_stale").is_some() => {
                preview = look(&session, &workspace).await?;
            }
            Err(error) => return hosted(error, args.output),
        }
    }
    Err(Failure::new(
        Code::Conflict,
        "the offer changes faster than it can be confirmed; nothing was created",
    ))
}

async fn look(session: &Session, workspace: &str) -> Result<PlanConfiguration, Failure> {
    let call = session.platform.call(PLAN_CONFIGURATION, &[workspace]);
    Ok(call.answer().await?)
}

async fn order(
    session: &Session,
    workspace: &str,
    body: &CreateProject,
) -> Result<Project, PlatformError> {
    let call = session.platform.call(CREATE, &[workspace]).body(body)?;
    call.repeatable().answer().await
}

/// CP-4d: what needs a hosted page is finished there; its address is the data of this answer.
fn hosted(error: PlatformError, format: Format) -> Result<(), Failure> {
    let Some(url) = error
        .refusal("payment_required")
        .and_then(|refusal| refusal.url.clone())
    else {
        return Err(error.into());
    };
    match format {
        Format::Json => output::json(&json!({"status": "payment_required", "url": url}))?,
        Format::Text => output::line(&url)?,
    }
    Err(Failure::new(
        Code::Failed,
        "a page of the platform comes first; nothing was created",
    )
    .hint("open the address above; the project is created there"))
}

fn plan(text: &str) -> Result<Plan, String> {
    text.parse().map_err(|_unknown| {
        let known: Vec<_> = Plan::ALL.iter().map(|plan| plan.as_str()).collect();
        format!("a plan is one of {}", known.join(", "))
    })
}

fn region(text: &str) -> Result<(Provider, String), String> {
    let wrong = || {
        let known: Vec<_> = Provider::ALL.iter().map(|known| known.as_str()).collect();
        format!(
            "write provider/region; a provider is one of {}",
            known.join(", ")
        )
    };
    let (provider, region) = text.split_once('/').ok_or_else(wrong)?;
    let provider = provider.parse().map_err(|_unknown| wrong())?;
    Ok((provider, region.to_owned()))
}

/// 128 bits: nobody draws the same twice.
const KEY_BYTES: usize = 16;
/// A person who confirms this often in vain is told so.
const MAX_PREVIEWS: usize = 5;
