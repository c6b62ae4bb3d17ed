//! Roles and removal of members, and open invitations.

use api::control::{
    MAX_PAGE_SIZE,
    workspaces::{
        CHANGE_MEMBER, ChangeMember, Invitation, InvitationList, InvitationStatus,
        LIST_INVITATIONS, LIST_MEMBERS, Member, MemberList, REMOVE_MEMBER, REVOKE_INVITATION, Role,
        Workspace,
    },
};
use clap::Parser;

use super::{Common, role, role_name};
use crate::{
    failure::{Code, Failure},
    id_prefix::{self, Candidate, Candidates},
    output,
    output::Format,
    platform::{Session, SessionFlags, not_found},
    prompt,
};

/// The flags of `svc workspace set-role`.
#[derive(Debug, Parser)]
pub(crate) struct SetRoleArgs {
    /// The member: email address or id
    member: String,

    /// The role: owner, admin, member or viewer
    #[arg(value_parser = role)]
    role: Role,

    /// The workspace: id or name
    #[arg(long, value_name = "WORKSPACE")]
    workspace: Option<String>,

    #[command(flatten)]
    common: Common,
}

/// The flags of `svc workspace remove`.
#[derive(Debug, Parser)]
pub(crate) struct RemoveArgs {
    /// The member: email address or id. Your own address leaves the workspace
    member: String,

    /// The workspace: id or name
    #[arg(long, value_name = "WORKSPACE")]
    workspace: Option<String>,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The flags of `svc workspace invitations`.
#[derive(Debug, Parser)]
pub(crate) struct InvitationsArgs {
    /// The workspace: id or name
    workspace: Option<String>,

    /// Page number, starting at 1
    #[arg(long, value_name = "N")]
    page: Option<u32>,

    /// Invitations per page, up to 100
    #[arg(long, value_name = "N")]
    page_size: Option<u32>,

    #[command(flatten)]
    common: Common,
}

/// The flags of `svc workspace withdraw`.
#[derive(Debug, Parser)]
pub(crate) struct WithdrawArgs {
    /// The invitation: email address or id
    invitation: String,

    /// The workspace: id or name
    #[arg(long, value_name = "WORKSPACE")]
    workspace: Option<String>,

    #[command(flatten)]
    flags: SessionFlags,
}

pub(super) async fn set_role(args: SetRoleArgs) -> Result<(), Failure> {
    let session = args.common.flags.open()?;
    let workspace = session.workspace(args.workspace.as_deref()).await?;
    let member = find_member(&session, &workspace, &args.member).await?;
    let body = ChangeMember {
        role: Some(args.role),
        status: None,
    };
    let ids = [workspace.id.as_str(), &member.id];
    let call = session.platform.call(CHANGE_MEMBER, &ids);
    let changed: Member = call.body(&body)?.answer().await?;
    if args.common.output == Format::Json {
        return output::json(&changed);
    }
    let role = role_name(changed.membership.role);
    output::message(&format!(
        "{} is {role} of {} now",
        changed.email, workspace.name
    ));
    Ok(())
}

pub(super) async fn remove(args: RemoveArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let workspace = session.workspace(args.workspace.as_deref()).await?;
    let member = find_member(&session, &workspace, &args.member).await?;
    let what = format!("{} from {}", member.email, workspace.name);
    confirm_removal(&what, args.yes)?;
    let ids = [workspace.id.as_str(), &member.id];
    session.platform.call(REMOVE_MEMBER, &ids).execute().await?;
    output::message(&format!("removed {what}"));
    Ok(())
}

pub(super) async fn invitations(args: InvitationsArgs) -> Result<(), Failure> {
    let session = args.common.flags.open()?;
    let workspace = session.workspace(args.workspace.as_deref()).await?;
    let call = session.platform.call(LIST_INVITATIONS, &[&workspace.id]);
    let list: InvitationList = call
        .query("page", args.page)
        .query("pageSize", args.page_size)
        .answer()
        .await?;
    if args.common.output == Format::Json {
        return output::json(&list);
    }
    let row = |invitation: &Invitation| {
        vec![
            invitation.email.clone(),
            role_name(invitation.role).to_owned(),
            status_name(invitation.status).to_owned(),
            invitation.expires_at.clone(),
            invitation.id.clone(),
        ]
    };
    output::table(
        &["EMAIL", "ROLE", "STATUS", "EXPIRES", "ID"],
        &list.invitations.iter().map(row).collect::<Vec<_>>(),
    )
}

pub(super) async fn withdraw(args: WithdrawArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let workspace = session.workspace(args.workspace.as_deref()).await?;
    let invitation = find_invitation(&session, &workspace, &args.invitation).await?;
    let ids = [workspace.id.as_str(), &invitation.id];
    let call = session.platform.call(REVOKE_INVITATION, &ids);
    call.execute().await?;
    output::message(&format!(
        "the invitation of {} to {} is withdrawn",
        invitation.email, workspace.name
    ));
    Ok(())
}

fn confirm_removal(what: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !prompt::is_possible() {
        let message = format!("{what} would be removed");
        return Err(Failure::usage(message).hint("add --yes to confirm without a prompt"));
    }
    if prompt::confirm(&format!("Remove {what}?"))? {
        Ok(())
    } else {
        Err(Failure::new(Code::Failed, "nothing was removed"))
    }
}

/// The member with this address or id.
async fn find_member(
    session: &Session,
    workspace: &Workspace,
    text: &str,
) -> Result<Member, Failure> {
    let (mut known, mut by_prefix) = (Vec::new(), Vec::new());
    let mut is_truncated = id_prefix::is_prefix(text);
    for page in 1..=MAX_PAGES {
        let call = session.platform.call(LIST_MEMBERS, &[&workspace.id]);
        let list: MemberList = call
            .query("page", Some(page))
            .query("pageSize", Some(MAX_PAGE_SIZE))
            .answer()
            .await?;
        let is_last = list.members.len() < usize::try_from(MAX_PAGE_SIZE).unwrap_or(usize::MAX);
        for member in list.members {
            if member.id == text || member.email.eq_ignore_ascii_case(text) {
                return Ok(member);
            }
            known.push(member.email.clone());
            if id_prefix::is_prefix(text) && member.id.starts_with(text) {
                by_prefix.push(member);
            }
        }
        if is_last {
            is_truncated = false;
            break;
        }
    }
    let candidate = |member: &Member| Candidate::new(&member.id, &member.email);
    if let Some(member) = only("member", text, by_prefix, is_truncated, candidate)? {
        return Ok(member);
    }
    let known = known.iter().map(String::as_str);
    Err(not_found("member", text, known, "svc workspace members"))
}

/// The open invitation with this address or id.
async fn find_invitation(
    session: &Session,
    workspace: &Workspace,
    text: &str,
) -> Result<Invitation, Failure> {
    let (mut known, mut by_prefix) = (Vec::new(), Vec::new());
    let mut is_truncated = id_prefix::is_prefix(text);
    for page in 1..=MAX_PAGES {
        let call = session.platform.call(LIST_INVITATIONS, &[&workspace.id]);
        let list: InvitationList = call
            .query("page", Some(page))
            .query("pageSize", Some(MAX_PAGE_SIZE))
            .answer()
            .await?;
        let is_last = list.invitations.len() < usize::try_from(MAX_PAGE_SIZE).unwrap_or(usize::MAX);
        let open = list.invitations.into_iter();
        for invitation in open.filter(|one| one.status == InvitationStatus::Pending) {
            if invitation.id == text || invitation.email.eq_ignore_ascii_case(text) {
                return Ok(invitation);
            }
            known.push(invitation.email.clone());
            if id_prefix::is_prefix(text) && invitation.id.starts_with(text) {
                by_prefix.push(invitation);
            }
        }
        if is_last {
            is_truncated = false;
            break;
        }
    }
    let candidate = |invitation: &Invitation| Candidate::new(&invitation.id, &invitation.email);
    if let Some(invitation) = only("invitation", text, by_prefix, is_truncated, candidate)? {
        return Ok(invitation);
    }
    if known.is_empty() {
        let message = format!("{} has no open invitation", workspace.name);
        return Err(Failure::new(Code::Failed, message)
            .hint("`svc workspace invitations` shows all of them"));
    }
    let known = known.iter().map(String::as_str);
    Err(not_found(
        "open invitation",
        text,
        known,
        "svc workspace invitations",
    ))
}

/// The only object of `found`, whose ids start with `text`.
fn only<T>(
    kind: &str,
    text: &str,
    mut found: Vec<T>,
    is_truncated: bool,
    candidate: fn(&T) -> Candidate,
) -> Result<Option<T>, Failure> {
    let candidates = Candidates {
        all: found.iter().map(candidate).collect(),
        is_truncated,
    };
    let selected = id_prefix::select(kind, text, candidates)?;
    Ok(selected.and_then(|_| found.pop()))
}

fn status_name(status: InvitationStatus) -> &'static str {
    match status {
        InvitationStatus::Pending => "pending",
        InvitationStatus::Accepted => "accepted",
        InvitationStatus::Revoked => "withdrawn",
        InvitationStatus::Expired => "expired",
    }
}

/// Pages that are searched: ten thousand members.
const MAX_PAGES: u32 = 100;
