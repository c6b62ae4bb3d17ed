//! The maintenance task: purges, metrics of what is overdue, notices of expiring tokens and
//! certificates, renewals.

use std::sync::Arc;
use std::time::Duration;

use store::Lock;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::credentials::expiry;
use crate::domains::notify_of_expiring_certificates;
use crate::http_api::problem::HandlerResult;
use crate::runtime::jobs::expiring_rows::ExpiringRows;
use crate::runtime::jobs::purge::purge_under;
use crate::runtime::metrics;

/// Runs a pass immediately and then every [`EVERY`], until `stop`.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) {
    loop {
        pass(&app, &stop).await;
        app.jobs.0.send_modify(|passes| *passes += 1);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Runs one pass. A failed job is retried in the next pass; the other jobs still run.
pub async fn pass(app: &App, stop: &CancellationToken) {
    match app.store.try_lock(Lock::Purge).await {
        Ok(Some(lock)) => {
            for kind in ExpiringRows::ALL {
                if stop.is_cancelled() {
                    break;
                }
                match purge_under(&lock, app, *kind, stop).await {
                    Ok(rows) => metrics::purged(*kind, rows),
                    Err(refusal) => failed(kind.as_str(), &refusal),
                }
            }
            lock.release().await;
        }
        Ok(None) => tracing::debug!("another process is running the purge"),
        Err(error) => failed("purge", &error.into()),
    }
    if stop.is_cancelled() {
        return;
    }
    if let Err(error) = note_overdue(app).await {
        failed("oldest rows", &error.into());
    }
    if let Err(refusal) = expiry::notify(app).await {
        failed("notices of expiring tokens", &refusal);
    }
    if let Err(refusal) = notify_of_expiring_certificates(app).await {
        failed("notices of expiring certificates", &refusal);
    }
    match renew(app, stop).await {
        Ok(periods) => metrics::renewed(periods),
        Err(refusal) => failed("renewals", &refusal),
    }
}

/// Reports how far behind the purge is, even if another process runs it.
async fn note_overdue(app: &App) -> Result<(), store::Error> {
    let mut read = app.store.read().await?;
    for kind in ExpiringRows::ALL {
        let overdue = kind.overdue(&mut read, &app.config.retention, app.now());
        metrics::purge_overdue(*kind, overdue.await?);
    }
    Ok(())
}

/// Renews every subscription that is due, each period in a transaction of its own. Returns how
/// many periods.
pub async fn renew(app: &App, stop: &CancellationToken) -> HandlerResult<u64> {
    let billing = app.plan_service.billing();
    let mut renewed = 0;
    while !stop.is_cancelled() {
        let now = app.now();
        let mut read = app.store.read().await?;
        let due = billing.due(&mut read, now).await?;
        drop(read);
        let before = renewed;
        for workspace in due {
            let mut tx = app.store.begin().await?;
            store::workspaces::lock(&mut tx, workspace).await?;
            match billing.renew(&mut tx, workspace, now).await {
                Ok(true) => {
                    tx.commit().await?;
                    renewed += 1;
                }
                Ok(false) => {}
                // The other subscriptions are still renewed.
                Err(refusal) => failed("renewal", &refusal),
            }
        }
        if renewed == before {
            break;
        }
    }
    Ok(renewed)
}

/// Short enough that a period is charged on the day on which it starts, and that batches stay
/// small.
pub const EVERY: Duration = Duration::from_mins(5);

fn failed(what: &str, refusal: &crate::http_api::problem::Refusal) {
    metrics::job_failed();
    let problem = refusal.problem();
    tracing::error!(job = what, problem = %problem.detail, "a job failed; it will be retried");
}
