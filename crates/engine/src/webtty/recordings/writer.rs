//! Task that stores one recording.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;
use tty::recording::{Entry, Recorder as Chain};
use types::webtty::SessionStatus;

use super::layout::{MAX_SEGMENT, ROLL, StoreError, StoredSession};
use super::queue::{Batch, End, Queue};
use super::{Inner, Meta};
use crate::config::RecordingPolicy;
use crate::random::random_bytes;

/// Maximum age of waiting entries before they are stored.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// Time limit of one write. A session that may go on without its recording waits less.
fn write_timeout(policy: RecordingPolicy) -> Duration {
    match policy {
        RecordingPolicy::Strict => Duration::from_secs(15),
        RecordingPolicy::BestEffort => Duration::from_secs(5),
    }
}

/// Interval in which a running session renews its mark; see `maintenance`.
pub(super) const MARK_INTERVAL: Duration = Duration::from_mins(5);

/// Time for which storing the end of a session is retried. After that, the next start or
/// maintenance detects that the session has ended.
const CLOSE_RETRY_TIME: Duration = Duration::from_mins(10);

/// Longest interval between two retries.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// End status of a session whose end was not reported.
pub(super) const INTERRUPTED: &str = "interrupted";

pub(super) struct Writer {
    inner: Arc<Inner>,
    queue: Arc<Queue>,
    project: Arc<str>,
    id: String,
    stored: StoredSession,
    chain: Chain,
    segment: Segment,
}

/// The current segment, as it is in the store.
#[derive(Clone, Default)]
struct Segment {
    /// Number of its first record; 0 if there is none yet.
    first: u64,
    /// Its records, one per line.
    clear: Vec<u8>,
    /// Its size in the store.
    size: u64,
}

impl Writer {
    pub(super) fn new(inner: Arc<Inner>, queue: Arc<Queue>, meta: &Meta) -> Self {
        let id = meta.session.id.clone();
        Self {
            chain: Chain::new(&id, inner.max_session),
            inner,
            queue,
            project: Arc::clone(&meta.project_id),
            stored: StoredSession {
                version: 1,
                session: at_rest(meta.session.clone()),
                tunnel: meta.tunnel.as_ref().clone(),
                sealed: meta.sealed,
                ended: false,
                head: None,
                deleted: None,
            },
            id,
            segment: Segment::default(),
        }
    }

    pub(super) async fn run(mut self) {
        if let Err(error) = self.begin().await {
            self.inner.mark_failed(&error);
            if self.queue.is_recorded() {
                self.queue.failed();
            }
        }
        let end = self.store_until_the_end().await;
        self.close(end).await;
        self.inner.running.lock().remove(&self.id);
    }

    async fn begin(&self) -> Result<(), StoreError> {
        let (store, limit) = (&self.inner.store, write_timeout(self.inner.policy));
        let marked = timeout(limit, store.mark(&self.project, &self.id)).await;
        marked.map_err(|_| StoreError::TimedOut)??;
        let put = timeout(limit, store.put_session(&self.project, &self.stored)).await;
        put.map_err(|_| StoreError::TimedOut)??;
        self.inner.mark_healthy();
        Ok(())
    }

    async fn store_until_the_end(&mut self) -> End {
        let mut alive = Instant::now() + MARK_INTERVAL;
        loop {
            tokio::select! {
                () = self.queue.wait_for_entries() => {}
                () = tokio::time::sleep_until(alive) => {
                    alive = Instant::now() + MARK_INTERVAL;
                    // One missed mark is harmless: maintenance waits for three.
                    let marking = self.inner.store.mark(&self.project, &self.id);
                    timeout(write_timeout(self.inner.policy), marking).await.ok();
                    continue;
                }
            }
            // More entries will follow, and one object for all of them is enough.
            tokio::select! {
                () = sleep(FLUSH_AFTER) => {}
                () = self.queue.wait_for_flush() => {}
            }
            let Batch { entries, lost, end } = self.queue.take();
            self.chain.count_lost_entries(lost);
            match self.store(entries).await {
                Ok(()) => self.queue.stored(),
                Err(UnstoredEntries { entries, error }) => {
                    self.chain.count_lost_entries(entries);
                    self.inner.mark_failed(&error);
                    self.queue.failed();
                }
            }
            if self.chain.is_full() {
                self.queue.full();
            }
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Makes records of entries, and stores as many at a time as fit into a segment.
    async fn store(
        &mut self,
        entries: VecDeque<(Entry, Timestamp)>,
    ) -> Result<(), UnstoredEntries> {
        let mut waiting = entries;
        while !waiting.is_empty() {
            let missed = |error, waiting: &VecDeque<_>| UnstoredEntries {
                entries: u64::try_from(waiting.len()).unwrap_or(u64::MAX),
                error,
            };
            if self.inner.usage.of(&self.project) >= self.inner.max_project {
                self.chain.end_early();
            }
            let segment = if self.segment.clear.len() < ROLL {
                self.segment.clone()
            } else {
                Segment::default()
            };
            let next = fill(self.chain.clone(), segment, &waiting)
                .map_err(|error| missed(error.into(), &waiting))?;
            let next = match next {
                // The current segment has no room for this record.
                ExtendedSegment { taken: 0, .. } => {
                    fill(self.chain.clone(), Segment::default(), &waiting)
                        .map_err(|error| missed(error.into(), &waiting))?
                }
                next => next,
            };
            if let Err(error) = self.put(next.chain, next.segment).await {
                return Err(missed(error, &waiting));
            }
            // An entry alone is smaller than a segment. This guards against an endless loop.
            waiting.drain(..next.taken.max(1).min(waiting.len()));
        }
        Ok(())
    }

    /// Stores a segment. From here on `chain` is the chain of the stored records.
    async fn put(&mut self, chain: Chain, mut segment: Segment) -> Result<(), StoreError> {
        let (first, clear) = (segment.first, &segment.clear);
        let same = self.segment.first == first;
        if clear.is_empty() || (same && self.segment.clear.len() == clear.len()) {
            // None of the entries fitted.
            self.chain = chain;
            return Ok(());
        }
        let putting = self
            .inner
            .store
            .put_segment(&self.project, &self.id, first, clear);
        let put = timeout(write_timeout(self.inner.policy), putting).await;
        segment.size = put.map_err(|_| StoreError::TimedOut)??;
        let before = if same { self.segment.size } else { 0 };
        self.inner.usage.change(&self.project, before, segment.size);
        self.inner.mark_healthy();
        self.chain = chain;
        self.segment = segment;
        Ok(())
    }

    /// Stores the end of the session, and the end of its chain.
    async fn close(&mut self, end: End) {
        self.stored.ended = true;
        match end {
            End::Finished(session) => self.stored.session = at_rest(*session),
            End::Interrupted => {
                let at = self.inner.clock.now();
                interrupt(&mut self.stored.session, at);
            }
        }
        let until = Instant::now() + CLOSE_RETRY_TIME;
        let mut between = Duration::from_millis(500);
        loop {
            let Err(error) = self.try_close().await else {
                return;
            };
            self.inner.mark_failed(&error);
            let stopping = self.inner.stop.is_cancelled();
            if stopping || Instant::now() + between > until {
                warn!(session = self.id, %error, "the end of a session could not be stored");
                return;
            }
            tokio::select! {
                () = sleep(between) => {}
                () = self.inner.stop.cancelled() => {}
            }
            between = (between * 2).min(MAX_RETRY_INTERVAL);
        }
    }

    async fn try_close(&mut self) -> Result<(), StoreError> {
        if self.chain.has_gap() && self.queue.is_recorded() {
            self.record_gap().await?;
        }
        self.stored.head = Some(self.chain.head().clone());
        let (store, limit) = (&self.inner.store, write_timeout(self.inner.policy));
        let put = timeout(limit, store.put_session(&self.project, &self.stored)).await;
        put.map_err(|_| StoreError::TimedOut)??;
        let unmarked = timeout(limit, store.unmark(&self.project, &self.id)).await;
        unmarked.map_err(|_| StoreError::TimedOut)??;
        self.inner.mark_healthy();
        Ok(())
    }

    /// Adds a record that reports lost entries at the end, which no later record would report.
    async fn record_gap(&mut self) -> Result<(), StoreError> {
        let nothing = Entry::internal(
            types::webtty::RecordType::RecordingState,
            None,
            "the end was not stored",
        );
        let waiting = VecDeque::from([(nothing, self.inner.clock.now())]);
        self.store(waiting).await.map_err(|missed| missed.error)
    }
}

/// Entries that were not stored, and the error.
struct UnstoredEntries {
    entries: u64,
    error: StoreError,
}

/// A segment with additional records, and the chain up to them.
struct ExtendedSegment {
    chain: Chain,
    segment: Segment,
    /// Number of entries that are in it, or that are not recorded.
    taken: usize,
}

fn fill(
    mut chain: Chain,
    mut segment: Segment,
    waiting: &VecDeque<(Entry, Timestamp)>,
) -> Result<ExtendedSegment, serde_json::Error> {
    let mut taken = 0;
    'entries: for (entry, at) in waiting {
        // The first record may report a gap; then the entry is still to be added.
        let mut again = true;
        while again {
            let Some(record) = chain.next(entry.clone(), *at, random_bytes()) else {
                break;
            };
            let line = serde_json::to_vec(&record)?;
            if segment.clear.len() + line.len() >= MAX_SEGMENT {
                break 'entries;
            }
            if segment.first == 0 {
                segment.first = record.seq;
            }
            segment.clear.extend_from_slice(&line);
            segment.clear.push(b'\n');
            again = chain.commit(&record);
        }
        taken += 1;
    }
    Ok(ExtendedSegment {
        chain,
        segment,
        taken,
    })
}

/// The session as it is stored: without its live state.
fn at_rest(mut session: api::webtty::Session) -> api::webtty::Session {
    session.live = api::webtty::SessionLive {
        available: false,
        attachable: false,
        participant_count: 0,
        controller_participant_id: None,
        has_upstream: false,
    };
    session
}

/// Marks a session as ended without a reported end.
pub(super) fn interrupt(session: &mut api::webtty::Session, at: Timestamp) {
    session.status = SessionStatus::Errored;
    session.ended_at.get_or_insert(format!("{at:.3}"));
    session
        .error_code
        .get_or_insert_with(|| INTERRUPTED.to_owned());
    session
        .error_message
        .get_or_insert_with(|| "The engine stopped during the session.".to_owned());
}
