//! `svc turn-credentials`: a TURN credential for a project.

use std::time::Duration;

use api::control::turn::{ISSUE_BY_ID, IssueTurnCredential, TurnCredential};
use clap::Parser;

use super::project::ProjectArg;
use crate::args::time;
use crate::failure::Failure;
use crate::output;
use crate::output::Format;

/// The flags of `svc turn-credentials`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc turn-credentials --ttl 10m --output json")]
pub(crate) struct Args {
    /// Lifetime, up to 1h. Default: 10m
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    ttl: Option<Duration>,

    #[command(flatten)]
    on: ProjectArg,
}

/// Issues a credential.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let seconds = args.ttl.map(|ttl| {
        u32::try_from(ttl.as_secs()).map_err(|_too_long| Failure::usage("--ttl is at most 1h"))
    });
    let body = IssueTurnCredential {
        ttl_seconds: seconds.transpose()?,
    };
    let session = args.on.flags.open()?;
    let project = session.project(args.on.project.as_deref()).await?;
    let call = session.platform.call(ISSUE_BY_ID, &[&project.id]);
    let issued: TurnCredential = call.body(&body)?.answer().await?;
    if args.on.output == Format::Json {
        return output::json(&issued);
    }
    let mut fields = vec![
        ("username", issued.username),
        ("credential", issued.credential),
        ("ttl", format!("{} s", issued.ttl)),
    ];
    fields.extend(issued.urls.into_iter().map(|url| ("url", url)));
    output::record(&fields)
}
