//! Maintenance of the store: ends recordings that were left open, removes old ones, and checks if a
//! failed store works again.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use types::id::WebttySessionId;

use super::Inner;
use super::layout::StoreError;
use super::read::{ReadError, Reader};
use super::writer::{MARK_INTERVAL, interrupt};

/// Interval of full maintenance.
const MAINTENANCE_INTERVAL: Duration = Duration::from_mins(10);

/// Interval in which a failed store is tested.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum duration of one test.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time without a mark after which another writer's session counts as ended.
const LOST_AFTER: Duration = Duration::from_secs(3 * MARK_INTERVAL.as_secs());

pub(super) async fn run(inner: Arc<Inner>) {
    let stop = inner.maintenance_stop.clone();
    tokio::select! {
        // Nothing is maintained from the moment of the stop: a new process may record then.
        biased;
        () = stop.cancelled() => {}
        () = Box::pin(maintain(&inner)) => {}
    }
}

async fn maintain(inner: &Inner) {
    let mut checked = false;
    let mut counted = false;
    let mut is_owner = false;
    let mut next_round = Instant::now();
    loop {
        if !checked {
            checked = match inner.store.has_its_key().await {
                Ok(true) => true,
                Ok(false) => {
                    inner.mark_failed(&"the existing recordings were encrypted with another key");
                    sleep(MAINTENANCE_INTERVAL).await;
                    continue;
                }
                Err(error) => {
                    inner.mark_failed(&error);
                    sleep(PROBE_INTERVAL).await;
                    continue;
                }
            };
            inner.mark_healthy();
        }
        if !is_owner && inner.predecessor.is_cancelled() && inner.store.acquire() {
            is_owner = true;
            // The process before has stored more since.
            counted = false;
        }
        if !is_owner && !counted {
            counted = inner.count().await.is_ok();
        }
        if is_owner && next_round <= Instant::now() {
            next_round = Instant::now() + MAINTENANCE_INTERVAL;
            if let Err(error) = inner.close_lost().await {
                warn!(%error, "sessions that were left open cannot be ended yet; this is retried");
            }
            if let Err(error) = inner.remove_old().await {
                warn!(%error, "old recordings cannot be removed yet; this is retried");
            }
            if !counted {
                counted = inner.count().await.is_ok();
            }
        }
        sleep(PROBE_INTERVAL).await;
        if !inner.is_healthy() {
            match timeout(PROBE_TIMEOUT, inner.store.probe()).await {
                Ok(Ok(())) => inner.mark_healthy(),
                Ok(Err(error)) => inner.mark_failed(&error),
                Err(_) => inner.mark_failed(&StoreError::TimedOut),
            }
        }
    }
}

impl Inner {
    /// Ends the recordings that stopped engines left open.
    pub(super) async fn close_lost(&self) -> Result<(), StoreError> {
        for (project, id, ours, made) in self.store.marked().await? {
            let silent = Timestamp::now().duration_since(made);
            let lost = ours || silent > SignedDuration::try_from(LOST_AFTER).unwrap_or_default();
            if !lost || self.running.lock().contains_key(&id) {
                continue;
            }
            match self.close_session(&project, &id).await {
                Ok(()) => info!(
                    project,
                    session = id,
                    "a session that was left open was ended"
                ),
                Err(error) => warn!(
                    project, session = id, %error,
                    "a session that was left open cannot be ended yet"
                ),
            }
        }
        Ok(())
    }

    async fn close_session(&self, project: &str, id: &str) -> Result<(), StoreError> {
        let mut stored = match self.store.get_session(project, id).await {
            Err(error) if error.is_missing() => return self.store.unmark(project, id).await,
            read => read?,
        };
        if !stored.ended {
            let mut reader = Reader::begin(&self.store, project, id, None).await?;
            let mut last = None;
            let is_complete = loop {
                match reader.next().await {
                    Ok(Some(records)) => last = records.last().map(|record| record.created_at),
                    Ok(None) => break true,
                    Err(ReadError::Store(error)) => return Err(error),
                    // The error stays visible to later readers.
                    Err(_) => break false,
                }
            };
            stored.head = is_complete.then(|| reader.head().clone());
            stored.ended = true;
            interrupt(
                &mut stored.session,
                last.unwrap_or_else(|| self.clock.now()),
            );
            self.store.put_session(project, &stored).await?;
        }
        self.store.unmark(project, id).await?;
        self.mark_healthy();
        Ok(())
    }

    /// Removes sessions that started before the retention period.
    pub(super) async fn remove_old(&self) -> Result<(), StoreError> {
        let Some(kept) = self.retention else {
            return Ok(());
        };
        let kept = SignedDuration::try_from(kept).unwrap_or(SignedDuration::MAX);
        let Ok(before) = self.clock.now().checked_sub(kept) else {
            return Ok(());
        };
        let Ok(millis) = u64::try_from(before.as_millisecond()) else {
            return Ok(());
        };
        // Ids sort by their time of creation.
        let first_kept = WebttySessionId::new(millis, [0; types::id::RANDOM_BYTES]);
        for project in self.store.projects().await? {
            let sessions = self.store.sessions(&project).await?;
            for id in sessions {
                if id.as_str() >= first_kept.as_str() {
                    break;
                }
                if self.running.lock().contains_key(&id) {
                    continue;
                }
                let bytes = self.store.remove_session(&project, &id).await?;
                self.ended.lock().remove(&id);
                self.usage.change(&project, bytes, 0);
                self.notify_changed();
                info!(project, session = id, bytes, "an old recording was removed");
            }
        }
        Ok(())
    }

    /// Counts the stored bytes of each project.
    pub(super) async fn count(&self) -> Result<(), StoreError> {
        for project in self.store.projects().await? {
            let bytes = self.store.bytes(&project).await?;
            self.usage.set(&project, bytes);
        }
        self.notify_changed();
        Ok(())
    }
}
