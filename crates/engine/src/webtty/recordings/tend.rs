//! Looks after the place: ends what was left open, removes what is old, and sees whether a store
//! that failed takes something again.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use types::id::WebttySessionId;

use super::Inner;
use super::layout::StoreError;
use super::read::{Reader, Unreadable};
use super::writer::{ALIVE, interrupt};

/// How often there is a look at all of it.
const ROUND: Duration = Duration::from_mins(10);

/// How often a store that failed is tried.
const TRY: Duration = Duration::from_secs(2);

/// How long one try may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// After so long without a sign, another writer's session has ended with its engine.
const LOST: Duration = Duration::from_secs(3 * ALIVE.as_secs());

pub(super) async fn run(inner: Arc<Inner>) {
    let stop = inner.stop.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = Box::pin(tend(&inner)) => {}
    }
}

async fn tend(inner: &Inner) {
    let mut checked = false;
    let mut counted = false;
    let mut round = Instant::now();
    loop {
        if !checked {
            checked = match inner.store.has_its_key().await {
                Ok(true) => true,
                Ok(false) => {
                    inner.not_stored(&"the recordings that are there were made with another key");
                    sleep(ROUND).await;
                    continue;
                }
                Err(error) => {
                    inner.not_stored(&error);
                    sleep(TRY).await;
                    continue;
                }
            };
            inner.stored();
        }
        if round <= Instant::now() {
            round = Instant::now() + ROUND;
            if let Err(error) = inner.close_lost().await {
                warn!(%error, "sessions that were left open are not ended yet");
            }
            if let Err(error) = inner.remove_old().await {
                warn!(%error, "old recordings are not removed yet");
            }
            if !counted {
                counted = inner.count().await.is_ok();
            }
        }
        sleep(TRY).await;
        if !inner.is_healthy() {
            match timeout(PATIENCE, inner.store.try_it()).await {
                Ok(Ok(())) => inner.stored(),
                Ok(Err(error)) => inner.not_stored(&error),
                Err(_) => inner.not_stored(&StoreError::Slow),
            }
        }
    }
}

impl Inner {
    /// Ends what engines left open that do not run any more: their sessions are over.
    pub(super) async fn close_lost(&self) -> Result<(), StoreError> {
        for (project, id, ours, made) in self.store.marked().await? {
            let silent = Timestamp::now().duration_since(made);
            let lost = ours || silent > SignedDuration::try_from(LOST).unwrap_or_default();
            if !lost || self.running.lock().contains_key(&id) {
                continue;
            }
            match self.close_one(&project, &id).await {
                Ok(()) => info!(
                    project,
                    session = id,
                    "a session that was left open is ended"
                ),
                Err(error) => warn!(project, session = id, %error, "a session is left open"),
            }
        }
        Ok(())
    }

    async fn close_one(&self, project: &str, id: &str) -> Result<(), StoreError> {
        let mut stored = match self.store.get_session(project, id).await {
            Err(error) if error.is_missing() => return self.store.unmark(project, id).await,
            read => read?,
        };
        if !stored.ended {
            let mut reader = Reader::begin(&self.store, project, id, None).await?;
            let mut last = None;
            let whole = loop {
                match reader.next().await {
                    Ok(Some(records)) => last = records.last().map(|record| record.created_at),
                    Ok(None) => break true,
                    Err(Unreadable::Store(error)) => return Err(error),
                    // What is wrong with it stays to be found.
                    Err(_) => break false,
                }
            };
            stored.head = whole.then(|| reader.head().clone());
            stored.ended = true;
            interrupt(
                &mut stored.session,
                last.unwrap_or_else(|| self.clock.now()),
            );
            self.store.put_session(project, &stored).await?;
        }
        self.store.unmark(project, id).await?;
        self.stored();
        Ok(())
    }

    /// Removes sessions that began before the time for which they are kept.
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
        // Ids sort by the time at which they were made.
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
                self.changed();
                info!(project, session = id, bytes, "an old recording is removed");
            }
        }
        Ok(())
    }

    /// Finds out what each project takes.
    pub(super) async fn count(&self) -> Result<(), StoreError> {
        for project in self.store.projects().await? {
            let bytes = self.store.bytes(&project).await?;
            self.usage.set(&project, bytes);
        }
        self.changed();
        Ok(())
    }
}
