//! Background jobs of the platform: deleting expired data and renewing subscriptions.
//!
//! One task of each process runs all jobs every few minutes. Two processes on one database may do
//! so at the same time. Only one of them deletes ([`store::Lock::Purge`]), and one transaction
//! charges each period.

mod purge;

use std::sync::Arc;
use std::time::Duration;

use store::Lock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use self::purge::ago;
use self::purge::purge_under;
pub use self::purge::{Stale, purge};
use crate::app::App;
use crate::metrics;
use crate::problem::Answer;

/// Progress of the task; a part of [`App`].
#[derive(Debug)]
pub struct Jobs(watch::Sender<u64>);

impl Default for Jobs {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Jobs {
    /// Number of completed passes. The receiver is notified of each new one.
    pub fn passes(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

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

/// Runs each job once. A job that fails is left for the next pass, and the others still run.
pub async fn pass(app: &App, stop: &CancellationToken) {
    match app.store.try_lock(Lock::Purge).await {
        Ok(Some(lock)) => {
            for stale in Stale::ALL {
                if stop.is_cancelled() {
                    break;
                }
                match purge_under(&lock, app, *stale, stop).await {
                    Ok(rows) => metrics::purged(*stale, rows),
                    Err(refusal) => failed(stale.as_str(), &refusal),
                }
            }
            lock.release().await;
        }
        Ok(None) => tracing::debug!("another process is at the purge"),
        Err(error) => failed("purge", &error.into()),
    }
    if stop.is_cancelled() {
        return;
    }
    if let Err(error) = note_overdue(app).await {
        failed("oldest rows", &error.into());
    }
    match renew(app, stop).await {
        Ok(periods) => metrics::renewed(periods),
        Err(refusal) => failed("renewals", &refusal),
    }
}

/// Updates the metrics of overdue deletions, whichever process deletes.
async fn note_overdue(app: &App) -> Result<(), store::Error> {
    let mut read = app.store.read().await?;
    for stale in Stale::ALL {
        let overdue = stale.overdue(&mut read, &app.config.retention, app.now());
        metrics::purge_overdue(*stale, overdue.await?);
    }
    Ok(())
}

/// Renews every subscription that is due, each period in its own transaction. Returns the number of
/// periods.
pub async fn renew(app: &App, stop: &CancellationToken) -> Answer<u64> {
    let billing = app.shop.billing();
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
                // A failed renewal must not prevent the others.
                Err(refusal) => failed("renewal", &refusal),
            }
        }
        if renewed == before {
            break;
        }
    }
    Ok(renewed)
}

/// Often enough to charge a period on its first day, and to keep the batches small.
pub const EVERY: Duration = Duration::from_mins(5);

fn failed(what: &str, refusal: &crate::problem::Refusal) {
    metrics::job_failed();
    let problem = refusal.problem();
    tracing::error!(job = what, problem = %problem.detail, "a job failed; it is tried again");
}
