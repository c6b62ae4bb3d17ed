//! `POST …/transfer`: moves a project to another workspace.

use std::sync::Arc;

use api::control::projects::{Project, TransferProject};
use axum::Json;
use axum::extract::State;
use serde_json::json;
use store::projects;
use types::permission::Permission;
use types::problem::Problem;

use super::create::setup_url;
use super::{audit_entry, view};
use crate::app::App;
use crate::billing::plans::explain;
use crate::billing::{Decision, Item, day_of};
use crate::caller::access;
use crate::caller::{Caller, ProjectsWrite};
use crate::http_api::extract::{Body, Segment};
use crate::http_api::problem::HandlerResult;

/// Moves the project. The caller needs the permission in both workspaces. A paid project can only
/// be moved to a workspace with a subscription that can take it over. That subscription pays from
/// the end of the period that is already paid.
pub(super) async fn transfer(
    caller: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    Body(body): Body<TransferProject>,
) -> HandlerResult<Json<Project>> {
    let who = &caller.principal;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let found = access::project(&mut tx, who, &id, PERMISSION).await?;
    let target = access::workspace(&mut tx, who, &body.workspace_id, PERMISSION).await?;
    let (from, to) = (found.project.workspace_id, target.id);
    if from == to {
        return Err(Problem::conflict()
            .with_detail("The project is already in this workspace.")
            .with_field("workspaceId")
            .into());
    }
    // Both locks are taken in a fixed order, so that two transfers in opposite directions do not
    // deadlock.
    for workspace in [from.min(to), from.max(to)] {
        store::workspaces::lock(&mut tx, workspace).await?;
    }
    // Checked again under the locks. A project that has moved meanwhile is not transferred.
    let project = access::project(&mut tx, who, &id, PERMISSION)
        .await?
        .project;
    access::workspace(&mut tx, who, &body.workspace_id, PERMISSION).await?;
    access::require_usable(&project)?;
    if project.workspace_id != from {
        return Err(Problem::not_found().into());
    }
    let Ok(plan) = project.plan.parse() else {
        return Err(Problem::internal().into());
    };
    let snapshot = app.plan_service.snapshot(&mut tx, to, now).await?;
    let offer = app.plan_service.offer(&snapshot, plan);
    if let Some(reason) = offer.takeover_refused() {
        return Err(Problem::conflict().with_detail(explain(reason)).into());
    }
    let billing = app.plan_service.billing();
    let paid_until = billing.remove(&mut tx, from, project.id, now).await?;
    match offer.decision {
        Decision::Free => {}
        Decision::Update { monthly, .. } => {
            let (account, today) = (billing.account(&mut tx, to).await?, day_of(now));
            let item = Item {
                workspace: to,
                project: project.id,
                plan: plan.as_str(),
                amount_now: account.amount_after(paid_until.unwrap_or(today), monthly, today),
                monthly,
                paid_until,
            };
            billing.add(&mut tx, &item, now).await?;
        }
        Decision::Checkout { .. } | Decision::Setup { .. } => {
            return Err(Problem::payment_required(setup_url(&app, to.as_str())).into());
        }
    }
    if !projects::transfer(&mut tx, project.id, from, to, now).await? {
        return Err(Problem::not_found().into());
    }
    for (workspace, action) in [(from, "project.transferred"), (to, "project.received")] {
        let details = json!({"from": from, "to": to});
        audit_entry::record_project_action(
            &mut tx, who, workspace, project.id, action, details, now,
        )
        .await?;
    }
    tx.commit().await?;
    let moved = projects::Project {
        workspace_id: to,
        ..project
    };
    view(&app, &moved).map(Json)
}

const PERMISSION: Permission = Permission::AccountProjectsReadWrite;
