//! `svc audit`: the audit log of a workspace.

use std::collections::HashMap;

use api::control::{
    MAX_PAGE_SIZE,
    people::{AuditEntry, AuditList, LIST_AUDIT},
    workspaces::{LIST_MEMBERS, MemberList},
};
use clap::Parser;

use crate::{
    failure::Failure,
    output,
    output::Format,
    platform::{Session, SessionFlags},
};

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
    if args.output == Format::Json {
        return output::json(&list);
    }
    // People who are no members any more keep their ids, and so does everyone on a pipe.
    let names = if output::is_terminal() {
        member_names(&session, &workspace.id).await
    } else {
        HashMap::new()
    };
    let rows: Vec<_> = list
        .entries
        .iter()
        .map(|entry| row(entry, &names))
        .collect();
    output::table(&["TIME", "ACTION", "TARGET", "BY", "WITH", "FROM"], &rows)
}

/// The addresses of the members by their ids. Empty if the token may not read them.
async fn member_names(session: &Session, workspace_id: &str) -> HashMap<String, String> {
    let call = session.platform.call(LIST_MEMBERS, &[workspace_id]);
    let list: Result<MemberList, _> = call.query("pageSize", Some(MAX_PAGE_SIZE)).answer().await;
    let members = list.map(|list| list.members).unwrap_or_default();
    let named = members.into_iter().map(|member| (member.id, member.email));
    named.collect()
}

fn row(entry: &AuditEntry, names: &HashMap<String, String>) -> Vec<String> {
    let named = |id: &String| names.get(id).unwrap_or(id).clone();
    let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    vec![
        entry.created_at.clone(),
        entry.action.clone(),
        named(&entry.target_id),
        entry
            .actor_user_id
            .as_ref()
            .map_or_else(|| "-".to_owned(), named),
        optional(&entry.actor_credential_id),
        optional(&entry.ip),
    ]
}
