//! Roles in workspaces that groups of the provider give. Each sign-in with the provider applies
//! them.
//!
//! The database marks a membership that comes from a group. Only these are changed and removed
//! here. A role that a person gave, or has changed since, stays as it is: otherwise a provider
//! could take a workspace from its owner. A suspended membership is not removed: otherwise the next
//! sign-in would add an active one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::json;
use store::members::{self, Role};
use store::users::User;
use store::workspaces::Status;
use store::{Tx, workspaces};
use types::id::WorkspaceId;

use super::section::OpenIdConfig;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::problem::HandlerResult;

/// Gives the user the roles of these groups, and removes those of other groups.
pub(super) async fn apply(
    app: &App,
    tx: &mut Tx,
    config: &OpenIdConfig,
    user: &User,
    groups: &[String],
    now: Timestamp,
) -> HandlerResult<()> {
    // Without rules no group gives a role, and those that one gave are removed.
    let rules = config.groups.as_ref();
    let wanted = rules.map(|rules| rules.roles(groups)).unwrap_or_default();
    replace(app, tx, &config.issuer, user, wanted, now).await
}

/// Removes all roles that groups gave to the user, whose identity is no longer linked.
pub(super) async fn remove_all(
    app: &App,
    tx: &mut Tx,
    issuer: &str,
    user: &User,
    now: Timestamp,
) -> HandlerResult<()> {
    replace(app, tx, issuer, user, BTreeMap::new(), now).await
}

async fn replace(
    app: &App,
    tx: &mut Tx,
    issuer: &str,
    user: &User,
    wanted: BTreeMap<WorkspaceId, Role>,
    now: Timestamp,
) -> HandlerResult<()> {
    let given = members::by_group(tx, user.id).await?;
    let given: BTreeMap<_, _> = given
        .into_iter()
        .map(|membership| (membership.workspace_id, membership.role))
        .collect();
    // Each change locks its workspace. All transactions take the locks in the order of the ids.
    let all: BTreeSet<_> = given.keys().chain(wanted.keys()).copied().collect();
    for workspace in all {
        let (old, new) = (given.get(&workspace), wanted.get(&workspace).copied());
        let action = match (old, new) {
            (Some(old), Some(new)) if *old == new => None,
            (Some(_), Some(new)) => {
                let is_changed =
                    members::set_role_by_group(tx, workspace, user.id, new, now).await?;
                is_changed.then_some(Action::MemberChanged)
            }
            (Some(_), None) => {
                let is_removed = members::delete_by_group(tx, workspace, user.id, now).await?;
                is_removed.then_some(Action::MemberRemoved)
            }
            (None, Some(new)) => {
                let is_added = add(app, tx, workspace, user, new, now).await?;
                is_added.then_some(Action::MemberAdded)
            }
            (None, None) => None,
        };
        if let Some(action) = action {
            let role = new.map(Role::as_str);
            let details = json!({"openid": issuer, "role": role});
            let (actor, target) = (Actor::user(user.id), AuditTarget::User(user.id));
            let scope = Some(workspace);
            audit::record_with(tx, &actor, scope, action, target, details, now).await?;
        }
    }
    Ok(())
}

/// Adds the user to a workspace. False if the user is a member already, or the workspace cannot
/// have another one. A sign-in does not fail because of it.
async fn add(
    app: &App,
    tx: &mut Tx,
    workspace: WorkspaceId,
    user: &User,
    role: Role,
    now: Timestamp,
) -> HandlerResult<bool> {
    workspaces::lock(tx, workspace).await?;
    let found = workspaces::by_id(tx, workspace).await?;
    if found.is_none_or(|found| found.status != Status::Active) {
        tracing::warn!(
            %workspace,
            "a group gives a role in a workspace that does not exist or is suspended"
        );
        return Ok(false);
    }
    if members::by_user(tx, workspace, user.id).await?.is_some() {
        return Ok(false);
    }
    let limit = app.config.limits.members_per_workspace;
    if members::count(tx, workspace).await? >= u64::from(limit) {
        tracing::warn!(%workspace, limit, "a group gives a role in a workspace that is full");
        return Ok(false);
    }
    members::insert_by_group(tx, workspace, user.id, role, now).await?;
    Ok(true)
}
