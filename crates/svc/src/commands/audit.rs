//! `svc audit`: the audit log of a workspace.

use api::control::people::{AuditEntry, AuditList, LIST_AUDIT};
use clap::Parser;

use crate::{failure::Failure, output, output::Format, platform::SessionFlags};

/// The flags of `svc audit`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc audit --workspace \"Analytical Engines\" --output json")]
pub(crate) struct Args {
    /// The workspace: id or name
    #[arg(long, value_name = "WORKSPACE")]
    workspace: Option<String>,

    /// Page number, starting at 1
    #[arg(long, value_name = "N")]
    page: Option<u32>,

    /// Entries per page, up to 100
    #[arg(long, value_name = "N")]
    page_size: Option<u32>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// Lists the entries, newest first.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let workspace = session.workspace(args.workspace.as_deref()).await?;
    let call = session.platform.call(LIST_AUDIT, &[&workspace.id]);
    let list: AuditList = call
        .query("page", args.page)
        .query("pageSize", args.page_size)
        .answer()
        .await?;
    match args.output {
        Format::Json => output::json(&list),
        Format::Text => output::table(
            &["TIME", "ACTION", "TARGET", "BY", "WITH", "FROM"],
            &list.entries.iter().map(row).collect::<Vec<_>>(),
        ),
    }
}

fn row(entry: &AuditEntry) -> Vec<String> {
    let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    vec![
        entry.created_at.clone(),
        entry.action.clone(),
        entry.target_id.clone(),
        optional(&entry.actor_user_id),
        optional(&entry.actor_credential_id),
        optional(&entry.ip),
    ]
}
