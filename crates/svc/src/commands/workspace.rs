//! `svc workspace`: workspaces and their members.

mod members;

use api::control::workspaces::{
    CREATE, DELETE, INVITE, Invite, LIST, LIST_MEMBERS, MemberList, MemberStatus, RENAME, Role,
    SentInvitation, Workspace, WorkspaceList, WorkspaceName,
};
use clap::{Parser, Subcommand};

use super::project::confirm_named_deletion;
use crate::{failure::Failure, output, output::Format, platform::SessionFlags};

/// The subcommands of `svc workspace`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List your workspaces
    List(Common),
    /// Create a workspace for a team
    #[command(after_help = "Example:\n  svc workspace create \"Analytical Engines\"")]
    Create(CreateArgs),
    /// Change a workspace's name
    #[command(after_help = "Example:\n  svc workspace rename Engines \"Analytical Engines\"")]
    Rename(RenameArgs),
    /// Delete a workspace that has no projects
    #[command(after_help = "Example:\n  svc workspace delete \"Analytical Engines\" --yes")]
    Delete(DeleteArgs),
    /// List the members of a workspace
    #[command(after_help = "Example:\n  svc workspace members \"Analytical Engines\"")]
    Members(MembersArgs),
    /// Change the role of a member
    #[command(after_help = "Example:\n  svc workspace set-role grace@example.com admin")]
    SetRole(members::SetRoleArgs),
    /// Remove a member, or leave a workspace
    #[command(after_help = "Example:\n  svc workspace remove grace@example.com --yes")]
    Remove(members::RemoveArgs),
    /// Invite a user to a workspace
    #[command(after_help = "Example:\n  svc workspace invite grace@example.com --role member")]
    Invite(InviteArgs),
    /// List the invitations to a workspace
    #[command(after_help = "Example:\n  svc workspace invitations --output json")]
    Invitations(members::InvitationsArgs),
    /// Withdraw an invitation
    #[command(after_help = "Example:\n  svc workspace withdraw grace@example.com")]
    Withdraw(members::WithdrawArgs),
}

/// The flags of all subcommands.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc workspace list --output json")]
pub(crate) struct Common {
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The flags of `svc workspace create`.
#[derive(Debug, Parser)]
pub(crate) struct CreateArgs {
    /// Name of the workspace
    name: String,

    #[command(flatten)]
    common: Common,
}

/// The flags of `svc workspace rename`.
#[derive(Debug, Parser)]
pub(crate) struct RenameArgs {
    /// The workspace: id or name
    workspace: String,

    /// The new name
    name: String,

    #[command(flatten)]
    common: Common,
}

/// The flags of `svc workspace delete`.
#[derive(Debug, Parser)]
pub(crate) struct DeleteArgs {
    /// The workspace: id or name
    workspace: String,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The flags of `svc workspace members`.
#[derive(Debug, Parser)]
pub(crate) struct MembersArgs {
    /// The workspace: id or name
    workspace: Option<String>,

    /// Only members whose name or address contains this text
    #[arg(long, value_name = "TEXT")]
    q: Option<String>,

    /// Page number, starting at 1
    #[arg(long, value_name = "N")]
    page: Option<u32>,

    /// Members per page, up to 100
    #[arg(long, value_name = "N")]
    page_size: Option<u32>,

    #[command(flatten)]
    common: Common,
}

/// The flags of `svc workspace invite`.
#[derive(Debug, Parser)]
pub(crate) struct InviteArgs {
    /// Email address to invite
    email: String,

    /// The role: owner, admin, member or viewer
    #[arg(long, default_value = "member", value_parser = role)]
    role: Role,

    /// The workspace: id or name
    #[arg(long, value_name = "WORKSPACE")]
    workspace: Option<String>,

    #[command(flatten)]
    common: Common,
}

/// Runs a subcommand.
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(common) => list(common).await,
        Command::Create(args) => create(args).await,
        Command::Rename(args) => rename(args).await,
        Command::Delete(args) => delete(args).await,
        Command::Members(args) => members(args).await,
        Command::SetRole(args) => members::set_role(args).await,
        Command::Remove(args) => members::remove(args).await,
        Command::Invite(args) => invite(args).await,
        Command::Invitations(args) => members::invitations(args).await,
        Command::Withdraw(args) => members::withdraw(args).await,
    }
}

async fn list(common: Common) -> Result<(), Failure> {
    let session = common.flags.open()?;
    let list: WorkspaceList = session.platform.call(LIST, &[]).answer().await?;
    match common.output {
        Format::Json => output::json(&list),
        Format::Text => output::table(
            &["NAME", "TYPE", "ROLE", "STATUS", "ID"],
            &list.workspaces.iter().map(row).collect::<Vec<_>>(),
        ),
    }
}

async fn create(args: CreateArgs) -> Result<(), Failure> {
    let session = args.common.flags.open()?;
    let body = WorkspaceName { name: args.name };
    let made: Workspace = session
        .platform
        .call(CREATE, &[])
        .body(&body)?
        .answer()
        .await?;
    show(args.common.output, &made)
}

async fn rename(args: RenameArgs) -> Result<(), Failure> {
    let session = args.common.flags.open()?;
    let workspace = session.workspace(Some(&args.workspace)).await?;
    let body = WorkspaceName { name: args.name };
    let call = session.platform.call(RENAME, &[&workspace.id]);
    let renamed: Workspace = call.body(&body)?.answer().await?;
    show(args.common.output, &renamed)
}

async fn delete(args: DeleteArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let workspace = session.workspace(Some(&args.workspace)).await?;
    confirm_named_deletion(
        &format!("the workspace {}", workspace.name),
        &args.workspace,
        &[&workspace.name, &workspace.id],
        args.yes,
    )?;
    session
        .platform
        .call(DELETE, &[&workspace.id])
        .execute()
        .await?;
    output::message(&format!("the workspace {} is deleted", workspace.name));
    Ok(())
}

async fn members(args: MembersArgs) -> Result<(), Failure> {
    let session = args.common.flags.open()?;
    let workspace = session.workspace(args.workspace.as_deref()).await?;
    let call = session.platform.call(LIST_MEMBERS, &[&workspace.id]);
    let list: MemberList = call
        .query("q", args.q)
        .query("page", args.page)
        .query("pageSize", args.page_size)
        .answer()
        .await?;
    if args.common.output == Format::Json {
        return output::json(&list);
    }
    let rows: Vec<_> = list
        .members
        .iter()
        .map(|member| {
            vec![
                member.email.clone(),
                member.name.clone(),
                role_name(member.membership.role).to_owned(),
                status_name(member.membership.status).to_owned(),
                member.id.clone(),
            ]
        })
        .collect();
    output::table(&["EMAIL", "NAME", "ROLE", "STATUS", "ID"], &rows)
}

async fn invite(args: InviteArgs) -> Result<(), Failure> {
    let session = args.common.flags.open()?;
    let workspace = session.workspace(args.workspace.as_deref()).await?;
    let body = Invite {
        email: args.email,
        role: args.role,
    };
    let call = session.platform.call(INVITE, &[&workspace.id]);
    let sent: SentInvitation = call.body(&body)?.answer().await?;
    if args.common.output == Format::Json {
        return output::json(&sent);
    }
    output::message(&format!(
        "{} was invited into {} by mail, until {}; the link is shown once:",
        sent.invitation.email, workspace.name, sent.invitation.expires_at
    ));
    output::line(&sent.url)
}

fn show(format: Format, workspace: &Workspace) -> Result<(), Failure> {
    match format {
        Format::Json => output::json(workspace),
        Format::Text => output::record(&[
            ("name", workspace.name.clone()),
            ("id", workspace.id.clone()),
            ("type", workspace.kind.clone()),
        ]),
    }
}

fn row(workspace: &Workspace) -> Vec<String> {
    vec![
        workspace.name.clone(),
        workspace.kind.clone(),
        role_name(workspace.membership.role).to_owned(),
        workspace.status.clone(),
        workspace.id.clone(),
    ]
}

fn role(text: &str) -> Result<Role, String> {
    [Role::Owner, Role::Admin, Role::Member, Role::Viewer]
        .into_iter()
        .find(|role| role_name(*role) == text)
        .ok_or_else(|| "a role is owner, admin, member or viewer".to_owned())
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Owner => "owner",
        Role::Admin => "admin",
        Role::Member => "member",
        Role::Viewer => "viewer",
    }
}

fn status_name(status: MemberStatus) -> &'static str {
    match status {
        MemberStatus::Active => "active",
        MemberStatus::Suspended => "suspended",
    }
}
