//! The task that stores one recording.

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
use crate::agents::random_bytes;
use crate::config::RecordingPolicy;

/// How old what waits becomes before it is stored.
const FLUSH: Duration = Duration::from_secs(1);

/// How long storing something may take. A session that is to go on without its recording waits less
/// for it.
fn patience(policy: RecordingPolicy) -> Duration {
    match policy {
        RecordingPolicy::Strict => Duration::from_secs(15),
        RecordingPolicy::BestEffort => Duration::from_secs(5),
    }
}

/// How often a session that goes on says so; see `tend`.
pub(super) const ALIVE: Duration = Duration::from_mins(5);

/// How long the end of a session is tried to be stored. After that the next start, or another look,
/// finds that it has ended.
const LAST_TRIES: Duration = Duration::from_mins(10);

/// Between two of them, at most.
const MAX_BETWEEN: Duration = Duration::from_secs(30);

/// The end of a session that nobody told.
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

/// The segment that is written to, as it is in the store.
#[derive(Clone, Default)]
struct Segment {
    /// Number of its first record; 0 where there is none yet.
    first: u64,
    /// Its records, a line each.
    clear: Vec<u8>,
    /// What it takes in the store.
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
            self.inner.not_stored(&error);
            if self.queue.is_recorded() {
                self.queue.failed();
            }
        }
        let end = self.store_until_the_end().await;
        self.close(end).await;
        self.inner.running.lock().remove(&self.id);
    }

    async fn begin(&self) -> Result<(), StoreError> {
        let (store, patience) = (&self.inner.store, patience(self.inner.policy));
        let marked = timeout(patience, store.mark(&self.project, &self.id)).await;
        marked.map_err(|_| StoreError::Slow)??;
        let put = timeout(patience, store.put_session(&self.project, &self.stored)).await;
        put.map_err(|_| StoreError::Slow)??;
        self.inner.stored();
        Ok(())
    }

    async fn store_until_the_end(&mut self) -> End {
        let mut alive = Instant::now() + ALIVE;
        loop {
            tokio::select! {
                () = self.queue.some() => {}
                () = tokio::time::sleep_until(alive) => {
                    alive = Instant::now() + ALIVE;
                    // Missed once is no harm: whoever looks waits for three.
                    let marking = self.inner.store.mark(&self.project, &self.id);
                    timeout(patience(self.inner.policy), marking).await.ok();
                    continue;
                }
            }
            // More is to come, and one object for it all is enough.
            tokio::select! {
                () = sleep(FLUSH) => {}
                () = self.queue.urgent() => {}
            }
            let Batch { entries, lost, end } = self.queue.take();
            self.chain.lose_many(lost);
            match self.store(entries).await {
                Ok(()) => self.queue.stored(),
                Err(UnstoredEntries { entries, error }) => {
                    self.chain.lose_many(entries);
                    self.inner.not_stored(&error);
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

    /// Makes records of entries, and stores as many at once as a segment takes.
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
                self.chain.fill();
            }
            let begun = if self.segment.clear.len() < ROLL {
                self.segment.clone()
            } else {
                Segment::default()
            };
            let next = fill(self.chain.clone(), begun, &waiting)
                .map_err(|error| missed(error.into(), &waiting))?;
            let next = match next {
                // The segment that was begun has no room for this one.
                ExtendedSegment { taken: 0, .. } => {
                    fill(self.chain.clone(), Segment::default(), &waiting)
                        .map_err(|error| missed(error.into(), &waiting))?
                }
                next => next,
            };
            if let Err(error) = self.put(next.chain, next.segment).await {
                return Err(missed(error, &waiting));
            }
            // An entry alone is smaller than a segment; this is so that nothing goes round for ever.
            waiting.drain(..next.taken.max(1).min(waiting.len()));
        }
        Ok(())
    }

    /// From here on the chain is what is stored.
    async fn put(&mut self, chain: Chain, mut segment: Segment) -> Result<(), StoreError> {
        let (first, clear) = (segment.first, &segment.clear);
        let same = self.segment.first == first;
        if clear.is_empty() || (same && self.segment.clear.len() == clear.len()) {
            // There was no room for any of it.
            self.chain = chain;
            return Ok(());
        }
        let putting = self
            .inner
            .store
            .put_segment(&self.project, &self.id, first, clear);
        let put = timeout(patience(self.inner.policy), putting).await;
        segment.size = put.map_err(|_| StoreError::Slow)??;
        let before = if same { self.segment.size } else { 0 };
        self.inner.usage.change(&self.project, before, segment.size);
        self.inner.stored();
        self.chain = chain;
        self.segment = segment;
        Ok(())
    }

    /// Stores how the session ended, and the end of its chain.
    async fn close(&mut self, end: End) {
        self.stored.ended = true;
        match end {
            End::Finished(session) => self.stored.session = at_rest(*session),
            End::Broken => {
                let at = self.inner.clock.now();
                interrupt(&mut self.stored.session, at);
            }
        }
        let until = Instant::now() + LAST_TRIES;
        let mut between = Duration::from_millis(500);
        loop {
            let Err(error) = self.try_to_close().await else {
                return;
            };
            self.inner.not_stored(&error);
            let stopping = self.inner.stop.is_cancelled();
            if stopping || Instant::now() + between > until {
                warn!(session = self.id, %error, "the end of a session is not stored");
                return;
            }
            tokio::select! {
                () = sleep(between) => {}
                () = self.inner.stop.cancelled() => {}
            }
            between = (between * 2).min(MAX_BETWEEN);
        }
    }

    async fn try_to_close(&mut self) -> Result<(), StoreError> {
        if self.chain.has_gap() && self.queue.is_recorded() {
            self.say_that_there_is_a_gap().await?;
        }
        self.stored.head = Some(self.chain.head().clone());
        let (store, patience) = (&self.inner.store, patience(self.inner.policy));
        let put = timeout(patience, store.put_session(&self.project, &self.stored)).await;
        put.map_err(|_| StoreError::Slow)??;
        let unmarked = timeout(patience, store.unmark(&self.project, &self.id)).await;
        unmarked.map_err(|_| StoreError::Slow)??;
        self.inner.stored();
        Ok(())
    }

    /// What was lost last has no record after it that would say so.
    async fn say_that_there_is_a_gap(&mut self) -> Result<(), StoreError> {
        let nothing = Entry::internal(
            types::webtty::RecordType::RecordingState,
            None,
            "the end was not stored",
        );
        let waiting = VecDeque::from([(nothing, self.inner.clock.now())]);
        self.store(waiting).await.map_err(|missed| missed.error)
    }
}

/// Entries that were not stored, and why.
struct UnstoredEntries {
    entries: u64,
    error: StoreError,
}

/// A segment with more in it, and the chain that it ends.
struct ExtendedSegment {
    chain: Chain,
    segment: Segment,
    /// How many entries are in it, or have no place in the recording.
    taken: usize,
}

fn fill(
    mut chain: Chain,
    mut segment: Segment,
    waiting: &VecDeque<(Entry, Timestamp)>,
) -> Result<ExtendedSegment, serde_json::Error> {
    let mut taken = 0;
    'entries: for (entry, at) in waiting {
        // The first record may be of a gap; then the entry is still to come.
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

/// A session as it is kept: nothing about it is so right now.
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

/// Says that a session ended without anybody telling how.
pub(super) fn interrupt(session: &mut api::webtty::Session, at: Timestamp) {
    session.status = SessionStatus::Errored;
    session.ended_at.get_or_insert(format!("{at:.3}"));
    session
        .error_code
        .get_or_insert_with(|| INTERRUPTED.to_owned());
    session
        .error_message
        .get_or_insert_with(|| "The engine stopped while the session ran.".to_owned());
}
