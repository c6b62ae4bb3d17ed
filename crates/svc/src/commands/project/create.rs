//! `svc project create`: preview, confirm, create (CP-4g).
//!
//! A creation always needs the confirmation of a concrete offer. A user confirms a question below
//! the billing impact, and a script repeats the fingerprint of the offer. No flag confirms an
//! unknown price.

use api::control::{
    plans::{PLAN_CONFIGURATION, Plan, PlanConfiguration, Provider},
    projects::{CREATE, CreateProject, Placement, Project},
};
use clap::Parser;
use serde_json::json;

use super::offer::{self, Choice, CreationStep};
use crate::failure::{Code, Failure};
use crate::output::Format;
use crate::platform::{PlatformError, Session, SessionFlags};
use crate::process::random;
use crate::{output, prompt};

/// The flags of `svc project create`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc project create staging --plan basic
  svc project create --preview --output json        what a program should read first
  svc project create staging --plan basic --confirm <creationFingerprint>")]
pub(crate) struct CreateArgs {
    /// Name of the project
    #[arg(required_unless_present = "preview")]
    name: Option<String>,

    /// Plan. Default: the recommended or the first available one
    #[arg(long, value_parser = plan)]
    plan: Option<Plan>,

    /// Region. Default: the recommended or the only region of the plan
    #[arg(long, value_name = "PROVIDER/REGION", value_parser = region)]
    region: Option<(Provider, String)>,

    /// The workspace: id or name
    #[arg(long, value_name = "WORKSPACE")]
    workspace: Option<String>,

    /// Only show the available plans and their prices
    #[arg(long, conflicts_with = "confirm")]
    preview: bool,

    /// Create without a question, if the offer still has this fingerprint
    // One in 64 fingerprints starts with a dash.
    #[arg(long, value_name = "FINGERPRINT", allow_hyphen_values = true)]
    confirm: Option<String>,

    /// Rejected: see --confirm
    #[arg(long, short = 'y', hide = true)]
    yes: bool,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// Shows the impact, asks for confirmation and creates the project.
pub(super) async fn run(args: CreateArgs) -> Result<(), Failure> {
    if args.yes {
        return Err(
            Failure::usage("--yes would confirm a price that was not shown").hint(
                "`svc project create --preview` shows it; pass its fingerprint with --confirm",
            ),
        );
    }
    let session = args.flags.open()?;
    let workspace = session.workspace(args.workspace.as_deref()).await?.id;
    let mut preview = preview_creation(&session, &workspace).await?;
    if args.preview {
        return match args.output {
            Format::Json => output::json(&preview),
            Format::Text => output::line(&offer::describe_all(&preview)),
        };
    }
    let name = args.name.as_deref().unwrap_or_default();
    // One idempotency key for the whole command, so that retries do not create a second project.
    let key = random::hex::<KEY_BYTES>()?;
    let mut confirmed = args.confirm.clone();
    for _ in 0..MAX_PREVIEWS {
        let wanted = args.region.as_ref();
        let choice = Choice::select(&preview, args.plan, wanted)?;
        let fingerprint = choice.option.creation_fingerprint.clone();
        match offer::next_step(&fingerprint, confirmed.as_deref(), prompt::is_possible()) {
            CreationStep::Create => {}
            CreationStep::Confirm { changed } => {
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
            CreationStep::Stale => {
                output::message(&choice.describe(Some(name)));
                return Err(Failure::new(
                    Code::Conflict,
                    "the offer is not the one that was confirmed; nothing was created",
                )
                .hint(format!(
                    "to confirm the offer above, use --confirm {fingerprint}"
                )));
            }
            CreationStep::Unconfirmed => {
                output::message(&choice.describe(Some(name)));
                return Err(Failure::usage(
                    "cannot ask for confirmation: not a terminal",
                )
                .hint(format!(
                    "to confirm the offer above, use --confirm {fingerprint}; programs can read it \
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
        match create_project(&session, &workspace, &body).await {
            Ok(project) => return super::show(args.output, &project),
            // CP-4b: the confirmed offer is outdated. The current one is shown, and the question is
            // asked again.
            Err(error) if error.refusal("creation_preview_stale").is_some() => {
                preview = preview_creation(&session, &workspace).await?;
            }
            Err(error) => return print_payment_url(error, args.output),
        }
    }
    Err(Failure::new(
        Code::Conflict,
        "the offer keeps changing before it can be confirmed; nothing was created",
    ))
}

async fn preview_creation(
    session: &Session,
    workspace: &str,
) -> Result<PlanConfiguration, Failure> {
    let call = session.platform.call(PLAN_CONFIGURATION, &[workspace]);
    Ok(call.answer().await?)
}

async fn create_project(
    session: &Session,
    workspace: &str,
    body: &CreateProject,
) -> Result<Project, PlatformError> {
    let call = session.platform.call(CREATE, &[workspace]).body(body)?;
    call.repeatable().answer().await
}

/// CP-4d: some steps must be completed on a hosted page. The response contains its address.
fn print_payment_url(error: PlatformError, format: Format) -> Result<(), Failure> {
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
        "a page of the platform must be completed first; nothing was created",
    )
    .hint("open the address above to create the project"))
}

pub(super) fn plan(text: &str) -> Result<Plan, String> {
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

/// 128 bits: collisions are practically impossible.
const KEY_BYTES: usize = 16;
/// Limit of confirmations that fail because the offer changed.
const MAX_PREVIEWS: usize = 5;
