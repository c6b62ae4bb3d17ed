//! `svc audit`: the audit log of a workspace.

use api::control::people::{AuditEntry, AuditList, LIST_AUDIT};
use clap::Parser;

use crate::{failure::Failure, names::Names, output, output::Format, platform::SessionFlags};

/// The flags of `svc audit`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc audit --workspace \"Analytical Engines\" --output json")]
pub(crate) struct Args {
    /// The workspace: id or name
    #[arg(long, value_name = "WORKSPACE")]
    workspace: Option<String>,

    /// Only entries of this action, such as `member.changed`
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,

    /// Only actions of the user with this id; `platform`: of the platform itself
    #[arg(long, value_name = "USER")]
    actor: Option<String>,

    /// Only changes of the object with this id
    #[arg(long, value_name = "ID")]
    target: Option<String>,

    /// Only entries of this time or later (RFC 3339)
    #[arg(long, value_name = "TIME")]
    start: Option<String>,

    /// Only entries before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    end: Option<String>,

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
        .query("action", args.action)
        .query("actor", args.actor)
        .query("target", args.target)
        .query("start", args.start)
        .query("end", args.end)
        .query("page", args.page)
        .query("pageSize", args.page_size)
        .answer()
        .await?;
    if args.output == Format::Json {
        return output::json(&list);
    }
    // Objects that no longer exist keep their ids, and so does everything on a pipe.
    let mut names = Names::default();
    if output::is_terminal() {
        names.insert(&workspace.id, &workspace.name);
        names.add_members(&session, &workspace.id).await;
        names.add_projects(&session).await;
        names.add_credentials(&session).await;
    }
    let rows: Vec<_> = list
        .entries
        .iter()
        .map(|entry| row(entry, &names))
        .collect();
    output::table(&["TIME", "ACTION", "TARGET", "BY", "WITH", "FROM"], &rows)
}

fn row(entry: &AuditEntry, names: &Names) -> Vec<String> {
    let dash = || "-".to_owned();
    let named = |id: &Option<String>| id.as_ref().map_or_else(dash, |id| names.of(id));
    vec![
        entry.created_at.clone(),
        entry.action.clone(),
        names.of(&entry.target_id),
        named(&entry.actor_user_id),
        named(&entry.actor_credential_id),
        entry.ip.clone().unwrap_or_else(dash),
    ]
}
