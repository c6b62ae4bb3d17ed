//! The task that checks domains whose check is due.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use store::domains::{self, Domain, State};
use store::projects::Project;
use store::{projects, workspaces};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::changes::{self, Outcome, TAKEN};
use super::check::{CheckReport, check};
use super::notice;
use super::records::ExpectedRecords;
use crate::app::App;
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::runtime::metrics;

/// Checks due domains until `stop`.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Err(refusal) = check_due(&app, &stop).await {
            log_failure(&refusal);
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

/// Checks all domains that are due now. A check that `stop` interrupts is repeated when its lease
/// ends.
///
/// # Errors
/// The database.
pub async fn check_due(app: &Arc<App>, stop: &CancellationToken) -> HandlerResult<()> {
    while !stop.is_cancelled() {
        let now = app.database_now();
        let lease_ends_at = later(now, LEASE);
        let mut tx = app.store.begin().await?;
        let claimed = domains::claim(&mut tx, now, lease_ends_at, BATCH).await?;
        tx.commit().await?;
        if claimed.is_empty() {
            break;
        }
        let mut running = JoinSet::new();
        for domain in claimed {
            let app = Arc::clone(app);
            running.spawn(async move {
                if let Err(refusal) = check_one(&app, &domain).await {
                    log_failure(&refusal);
                }
            });
        }
        tokio::select! {
            () = stop.cancelled() => running.shutdown().await,
            () = finish(&mut running) => {}
        }
    }
    Ok(())
}

async fn finish(running: &mut JoinSet<()>) {
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "the check of a domain ended unexpectedly");
        }
    }
}

async fn check_one(app: &Arc<App>, claimed: &Domain) -> HandlerResult<()> {
    let mut conn = app.store.read().await?;
    let project = projects::by_id(&mut conn, claimed.project_id).await?;
    drop(conn);
    // The domains of a deleted project are deleted with it.
    let Some(project) = project else {
        return Ok(());
    };
    let expected = ExpectedRecords::new(app, &project, claimed)?;
    let started_at = app.database_now();
    // Only a request of its project ends a quarantine early.
    let report = match claimed.state {
        State::Quarantined => None,
        State::Pending | State::Verified | State::Warned | State::Suspended => {
            Some(check(&app.domains.resolver, &expected).await)
        }
    };
    let now = app.database_now();
    let mut tx = app.store.begin().await?;
    workspaces::lock(&mut tx, project.workspace_id).await?;
    let current = domains::by_id(&mut tx, project.id, claimed.id).await?;
    // A user may have removed it, or checked it with a newer result.
    // A result of the future was made before the clock was set back.
    let is_current = |domain: &Domain| {
        let last = domain.last_checked_at;
        last.is_none_or(|at| at < started_at || at > now)
    };
    let Some(current) = current.filter(is_current) else {
        return Ok(());
    };
    let of = (&project, &current);
    let outcome = match changes::apply(&mut tx, app, of, report.as_ref(), None, now).await {
        Err(refusal) if refusal.problem().code == TAKEN => {
            drop(tx);
            return postpone(app, &project, &current, report.as_ref(), now).await;
        }
        outcome => outcome?,
    };
    tx.commit().await?;
    app.webhooks.wake();
    match outcome {
        Outcome::Kept(domain, Some(change)) => {
            notice::send(app, &project, &domain, change, now).await
        }
        Outcome::Kept(_, None) | Outcome::Deleted => Ok(()),
    }
}

/// Keeps a pending domain whose records are there, but whose name another project holds.
async fn postpone(
    app: &App,
    project: &Project,
    domain: &Domain,
    report: Option<&CheckReport>,
    now: Timestamp,
) -> HandlerResult<()> {
    let mut tx = app.store.begin().await?;
    workspaces::lock(&mut tx, project.workspace_id).await?;
    if let Some(current) = domains::by_id(&mut tx, project.id, domain.id).await?
        && current.state == State::Pending
    {
        let checks = report.map(CheckReport::checks).unwrap_or_default();
        let postponed = Domain {
            last_checked_at: Some(now),
            next_check_at: later(now, TAKEN_RETRY),
            report: super::view::stored(&checks),
            ..current
        };
        domains::save(&mut tx, &postponed, State::Pending, now).await?;
    }
    Ok(tx.commit().await?)
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn log_failure(refusal: &Refusal) {
    metrics::job_failed();
    let problem = refusal.problem();
    tracing::error!(
        job = "domains", problem = %problem.detail,
        "the check of a domain failed with an internal error; it will be retried"
    );
}

/// Interval for finding due domains. Their checks are minutes to days apart.
const POLL: Duration = Duration::from_secs(30);

/// Domains that are checked at the same time. Each check has at most six open sockets.
const BATCH: u32 = 16;

/// Longer than a check may take, plus time for the database.
const LEASE: SignedDuration = SignedDuration::from_mins(2);

/// Until the next check of a domain that another project holds.
const TAKEN_RETRY: SignedDuration = SignedDuration::from_hours(24);
