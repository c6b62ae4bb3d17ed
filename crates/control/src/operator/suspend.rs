//! Suspending and resuming, for the API and the pages.
//!
//! The status is checked at every use, so a suspension takes effect immediately in every process.
//! Nothing is revoked, so resuming restores the previous state.

use std::net::IpAddr;

use serde_json::json;
use store::users::{Role, Status};
use store::{Lock, Tx, links, projects, sessions, users, workspaces};
use types::id::{ProjectId, UserId, WorkspaceId};
use types::problem::Problem;

use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::caller::Operator;
use crate::http_api::problem::{HandlerResult, Refusal};

/// An object that can be suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A user: sign-in is refused, and so are the user's credentials.
    User(UserId),
    /// A workspace: its members may only read.
    Workspace(WorkspaceId),
    /// A project: it is unavailable.
    Project(ProjectId),
}

/// Reason of a suspension, which is stored in the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(String);

impl Reason {
    /// Validates a reason.
    ///
    /// # Errors
    /// It is empty, too long, or has control characters.
    pub fn parse(given: &str) -> HandlerResult<Self> {
        let reason = given.trim();
        let length = reason.chars().count();
        if reason.chars().any(char::is_control) || !(1..=MAX_REASON).contains(&length) {
            let detail = "A reason must have 1 to 500 characters on one line.";
            return Err(Problem::invalid_request(detail).with_field("reason").into());
        }
        Ok(Self(reason.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Longest reason, in characters: a sentence and the number of a ticket.
const MAX_REASON: usize = 500;

/// Suspends the object.
///
/// # Errors
/// 404 if it does not exist; 409 if it is suspended already, or is the operator's own account.
pub async fn suspend(
    app: &App,
    operator: &Operator,
    ip: IpAddr,
    subject: Subject,
    reason: &Reason,
) -> HandlerResult<()> {
    let now = app.now();
    let actor = &operator.principal.user;
    let mut tx = app.store.begin().await?;
    let (workspace, action, target) = match subject {
        Subject::User(id) => {
            if id == actor.id {
                return Err(conflict("You cannot suspend yourself."));
            }
            require_operator(&mut tx, actor.id).await?;
            let user = users::by_id(&mut tx, id).await?.ok_or_else(missing)?;
            let (from, to) = (Status::Active, Status::Suspended);
            if !users::change_status(&mut tx, user.id, from, to, now).await? {
                return Err(conflict(ALREADY));
            }
            sessions::end_all(&mut tx, id, None, now).await?;
            for kind in links::Kind::ALL {
                links::revoke(&mut tx, id, *kind, now).await?;
            }
            (None, Action::UserSuspended, AuditTarget::User(id))
        }
        Subject::Workspace(id) => {
            let found = workspaces::by_id(&mut tx, id).await?;
            found.ok_or_else(missing)?;
            let (from, to) = (workspaces::Status::Active, workspaces::Status::Suspended);
            if !workspaces::change_status(&mut tx, id, from, to, now).await? {
                return Err(conflict(ALREADY));
            }
            (
                Some(id),
                Action::WorkspaceSuspended,
                AuditTarget::Workspace(id),
            )
        }
        Subject::Project(id) => {
            let project = projects::by_id(&mut tx, id).await?.ok_or_else(missing)?;
            if !projects::suspend(&mut tx, id, now).await? {
                return Err(conflict(ALREADY));
            }
            let workspace = project.workspace_id;
            (
                Some(workspace),
                Action::ProjectSuspended,
                AuditTarget::Project(id),
            )
        }
    };
    let actor = Actor::caller(&operator.principal).with_ip(ip);
    let details = json!({"reason": reason.0});
    audit::record_with(&mut tx, &actor, workspace, action, target, details, now).await?;
    tx.commit().await?;
    Ok(())
}

/// Resumes the object.
///
/// # Errors
/// 404 if it does not exist; 409 if it is not suspended.
pub async fn resume(
    app: &App,
    operator: &Operator,
    ip: IpAddr,
    subject: Subject,
) -> HandlerResult<()> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let (resumed, workspace, action, target) = match subject {
        Subject::User(id) => {
            users::by_id(&mut tx, id).await?.ok_or_else(missing)?;
            let (from, to) = (Status::Suspended, Status::Active);
            let resumed = users::change_status(&mut tx, id, from, to, now).await?;
            (resumed, None, Action::UserResumed, AuditTarget::User(id))
        }
        Subject::Workspace(id) => {
            let found = workspaces::by_id(&mut tx, id).await?;
            found.ok_or_else(missing)?;
            let (from, to) = (workspaces::Status::Suspended, workspaces::Status::Active);
            let resumed = workspaces::change_status(&mut tx, id, from, to, now).await?;
            let target = AuditTarget::Workspace(id);
            (resumed, Some(id), Action::WorkspaceResumed, target)
        }
        Subject::Project(id) => {
            let project = projects::by_id(&mut tx, id).await?.ok_or_else(missing)?;
            let resumed = projects::resume(&mut tx, id, now).await?;
            let workspace = Some(project.workspace_id);
            let target = AuditTarget::Project(id);
            (resumed, workspace, Action::ProjectResumed, target)
        }
    };
    if !resumed {
        return Err(conflict("It is not suspended."));
    }
    let actor = Actor::caller(&operator.principal).with_ip(ip);
    audit::record(&mut tx, &actor, workspace, action, target, now).await?;
    tx.commit().await?;
    Ok(())
}

/// Checks under the lock that the caller is still an operator. Of two operators who suspend each
/// other, or end each other's role, at the same time, only one succeeds. So at least one always
/// remains.
pub(super) async fn require_operator(tx: &mut Tx, id: UserId) -> HandlerResult<()> {
    Lock::Operators.take(tx).await?;
    let user = users::by_id(tx, id).await?;
    let is_one = |user: &users::User| user.role == Role::Admin && user.status == Status::Active;
    user.filter(is_one).map(|_| ()).ok_or_else(missing)
}

const ALREADY: &str = "It is already suspended.";

pub(super) fn conflict(detail: &'static str) -> Refusal {
    Problem::conflict().with_detail(detail).into()
}

fn missing() -> Refusal {
    Problem::not_found().into()
}
