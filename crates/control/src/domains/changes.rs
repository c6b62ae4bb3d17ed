//! Changes of domains, each with its audit entry and its event in one transaction.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use store::domains::{self, Domain, State};
use store::projects::Project;
use store::{Conflict, Tx, events, stored_records};
use types::event::{Event, EventType};
use types::id::{EventId, unix_millis};
use types::problem::Problem;

use super::check::CheckReport;
use super::lifecycle::{Change, LifecycleStep, RecordState, after_check};
use super::view;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::caller::Principal;
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::projects::audit_entry;
use crate::runtime::random;
use crate::webhooks::on_event;

/// Result of a check that was stored.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The domain has this state, and changed in this way.
    Kept(Box<Domain>, Option<Change>),
    /// The domain expired and was deleted.
    Deleted,
}

/// Applies the report of a check to a domain that was read in this transaction, under the lock of
/// its workspace. Without a report no name server was asked.
///
/// # Errors
/// 409 `domain_taken` if another project holds the name.
pub(super) async fn apply(
    tx: &mut Tx,
    app: &App,
    (project, domain): (&Project, &Domain),
    report: Option<&CheckReport>,
    by: Option<&Principal>,
    now: Timestamp,
) -> HandlerResult<Outcome> {
    let jitter = u16::from_be_bytes(random::bytes::<2>()?);
    let is_pending = domain.state == State::Pending;
    let finding = report.map_or(RecordState::Unchecked, |report| report.finding(is_pending));
    let (mut next, change) = match after_check(domain, finding, now, jitter) {
        LifecycleStep::Keep(next, change) => (next, change),
        LifecycleStep::Delete => {
            domains::delete(tx, project.id, domain.id, now).await?;
            note(
                tx,
                app,
                (project, domain),
                EventType::DomainDeleted,
                by,
                now,
            )
            .await?;
            return Ok(Outcome::Deleted);
        }
    };
    if let Some(report) = report {
        next.report = view::stored(&report.checks());
    }
    if domain.state == State::Pending && next.state != State::Pending {
        domains::release_quarantined(tx, &domain.hostname, now).await?;
        if domains::holder(tx, &domain.hostname).await?.is_some() {
            return Err(taken());
        }
    }
    match domains::save(tx, &next, domain.state, now).await {
        // Another project was verified at the same moment.
        Err(store::Error::Conflict(Conflict::DomainTaken)) => return Err(taken()),
        Ok(true) => {}
        // At the end of its quarantine another project has taken the name.
        Ok(false) => return Ok(Outcome::Deleted),
        Err(error) => return Err(error.into()),
    }
    if let Some(change) = change {
        note(tx, app, (project, &next), event_type(change), by, now).await?;
    }
    Ok(Outcome::Kept(next, change))
}

/// Writes the audit entry and the event of a change. Call `app.webhooks.wake()` after the commit.
pub(super) async fn note(
    tx: &mut Tx,
    app: &App,
    (project, domain): (&Project, &Domain),
    kind: EventType,
    by: Option<&Principal>,
    now: Timestamp,
) -> HandlerResult<()> {
    let details = json!({"domain": domain.id, "hostname": domain.hostname});
    let workspace = project.workspace_id;
    if let Some(who) = by {
        let action = kind.as_str();
        audit_entry::record_project_action(tx, who, workspace, project.id, action, details, now)
            .await?;
    } else if let Some(action) = action(kind) {
        let (actor, target) = (Actor::anonymous(), AuditTarget::Project(project.id));
        audit::record_with(tx, &actor, Some(workspace), action, target, details, now).await?;
    }
    store_event(tx, app, (project, domain), kind, now).await
}

/// Stores the event, for the list of events and for webhooks.
async fn store_event(
    tx: &mut Tx,
    app: &App,
    (project, domain): (&Project, &Domain),
    kind: EventType,
    now: Timestamp,
) -> HandlerResult<()> {
    let id = EventId::new(unix_millis(now), random::bytes()?);
    let mut event = Event::new(id, kind, now, object(domain));
    event.workspace_id = Some(project.workspace_id.to_string());
    event.project_id = Some(project.id.to_string());
    event.user_id = Some(domain.created_by.to_string());
    let days = app.plan_service.terms_of(project)?.log_retention_days;
    let retention = SignedDuration::from_hours(24 * i64::from(days));
    let row = events::Event {
        id: event.id,
        kind: kind.to_string(),
        category: "lifecycle".to_owned(),
        workspace_id: project.workspace_id,
        project_id: project.id,
        cluster_id: None,
        user_id: event.user_id.clone(),
        payload: event.object.clone(),
        created_at: now,
        expires_at: now.saturating_add(retention).unwrap_or(Timestamp::MAX),
    };
    events::insert(tx, &row).await?;
    on_event(tx, &event, now).await?;
    let added = stored_records::StoredRecords { logs: 0, events: 1 };
    let limits = stored_records::StoredRecords {
        logs: app.config.limits.log_rows_per_project.into(),
        events: app.config.limits.event_rows_per_project.into(),
    };
    stored_records::count(tx, project.id, &added, &limits, MAX_REMOVED_ROWS).await?;
    Ok(())
}

/// The domain in an event. Engine JSON and events are in `snake_case`.
fn object(domain: &Domain) -> Value {
    json!({
        "id": domain.id,
        "hostname": domain.hostname,
        "status": domain.state.as_str(),
    })
}

/// The event of a change.
const fn event_type(change: Change) -> EventType {
    match change {
        Change::Verified => EventType::DomainVerified,
        Change::Warned => EventType::DomainWarned,
        Change::Suspended => EventType::DomainSuspended,
        Change::Released => EventType::DomainReleased,
    }
}

/// The audit entry of a change that no user caused.
const fn action(kind: EventType) -> Option<Action> {
    match kind {
        EventType::DomainVerified => Some(Action::DomainVerified),
        EventType::DomainWarned => Some(Action::DomainWarned),
        EventType::DomainSuspended => Some(Action::DomainSuspended),
        EventType::DomainReleased => Some(Action::DomainReleased),
        EventType::DomainDeleted => Some(Action::DomainDeleted),
        _ => None,
    }
}

/// 409 `domain_taken`. It does not name the project that has the name.
pub(super) fn taken() -> Refusal {
    let detail = "Another project holds this domain. If it is yours, remove the ownership record of \
                  that project; the domain is released when its records have been missing for weeks.";
    Problem::new(409, TAKEN, detail)
        .with_field("hostname")
        .into()
}

/// Code of the refusal of a name that another project holds.
pub(super) const TAKEN: &str = "domain_taken";

/// Rows that one event removes above the limit of a project, so that a lower limit takes effect
/// step by step.
const MAX_REMOVED_ROWS: u32 = 2;
