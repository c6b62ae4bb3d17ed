//! Storage of session recordings, and access to them.
//!
//! A session starts its recording with [`Recorder::start`]. It passes each entry to
//! [`Recording::record`], which never waits, and ends the recording with [`Recording::finish`].
//! Entries wait in a bounded queue. A task per recording turns them into records and stores them
//! sealed (`writer`). This module decides if a session waits for its recording. A [`RecordingPace`]
//! states how the session must proceed: go on, hold, or end.
//!
//! `layout` defines the objects, `open` opens the store (a folder, or a bucket of an S3-compatible
//! store). `maintenance` ends recordings that a killed engine left open, and removes old ones.
//! `read`, `export` and `search` read recordings.
//!
//! While an engine is replaced by a new process, both store their own recordings. Only one of them
//! maintains the store, because a recording that the other one makes looks as if it was left open:
//! the old process stops its maintenance ([`Recorder::stop_maintenance`]) before the new one
//! records, and that one starts its own when the old process has ended.

mod export;
mod key;
mod layout;
mod lock;
mod maintenance;
mod open;
mod queue;
mod read;
mod readers;
mod search;
#[cfg(test)]
mod tests;
mod usage;
mod writer;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use tty::recording::Entry;
use types::tunnel::Tunnel;
use types::webtty::RecordingMode;

use self::layout::{Store, StoredSession};
use self::queue::{End, Queue};
use self::readers::Readers;
use self::usage::Usage;
use crate::clock::Clock;
use crate::config::{RecordingPolicy, Recordings};

pub use self::export::{Export, Format};
pub use self::open::OpenError;
pub use self::read::{ReadError, Verification};
pub use self::search::{Search, SearchMatch, SearchResult};

/// Makes and reads recordings. An engine has one.
#[derive(Debug, Default)]
pub struct Recorder {
    /// `None` if no store is configured.
    inner: Option<Arc<Inner>>,
}

/// Metadata of a session at its start.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Id of the project.
    pub project_id: Arc<str>,
    /// The session as lists show it. Its `recording_mode` decides if there will be entries: of a
    /// private session only the metadata is kept.
    pub session: api::webtty::Session,
    /// The tunnel of its server. A caller that may see the tunnel may see the session, also later.
    pub tunnel: Arc<Tunnel>,
    /// The payloads of entries are end-to-end encrypted.
    pub sealed: bool,
}

/// A stored session.
#[derive(Clone, Debug)]
pub struct RecordedSession {
    /// The session as lists show it.
    pub session: api::webtty::Session,
    /// The tunnel of its server at that time.
    pub tunnel: Tunnel,
}

/// Pace that the recording requires of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingPace {
    /// The session continues: there is capacity, or gaps are allowed.
    Go,
    /// The session takes nothing from either side until there is capacity.
    Hold,
    /// The session ends: it must not go on unrecorded.
    End,
}

/// The recording cannot start, and the session must not start without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session cannot be recorded")]
pub struct RecordingUnavailableError;

/// The recording of one session. Dropping it ends the recording as interrupted: the stored records
/// are kept.
#[derive(Debug)]
pub struct Recording {
    queue: Arc<Queue>,
}

/// State that all recordings of an engine share.
#[derive(Debug)]
struct Inner {
    store: Store,
    policy: RecordingPolicy,
    max_session: u64,
    max_project: u64,
    retention: Option<std::time::Duration>,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    /// False after a failure of the store, true after a success. Receivers are notified of each of
    /// them, and of each removal and count.
    healthy: watch::Sender<bool>,
    usage: Usage,
    /// Recordings in progress in this process.
    running: Mutex<HashMap<String, Arc<Queue>>>,
    /// Metadata of ended sessions, for lists.
    ended: Mutex<HashMap<String, Arc<StoredSession>>>,
    /// Limit of concurrent exports, verifications and searches: each has a thread and some
    /// megabytes.
    readers: Arc<Readers>,
    /// Limit of concurrent lists: each reads up to thousands of objects of the store.
    lists: Arc<Readers>,
    tasks: TaskTracker,
    /// Cancelled when the engine stops: failed writes are then no longer retried.
    stop: CancellationToken,
    /// Cancelled with `stop`, or when another process is about to record in this store.
    maintenance_stop: CancellationToken,
    /// Cancelled when the process that this one replaces has ended.
    predecessor: CancellationToken,
}

/// See [`Inner::readers`].
const MAX_READERS: usize = 8;

/// See [`Inner::lists`]. A list requests 16 objects at the same time.
const MAX_LISTS: usize = 32;

impl Recorder {
    /// Opens the configured store and starts its maintenance. The runtime of the caller stores the
    /// recordings.
    ///
    /// # Errors
    /// [`OpenError`]: the folder or the key cannot be used. An unreachable network store is not an
    /// error here; nothing is recorded until it responds.
    pub async fn open(config: &Recordings, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let nobody = CancellationToken::new();
        nobody.cancel();
        Self::open_after(config, clock, nobody).await
    }

    /// As [`open`](Self::open), in a process that replaces another one. `predecessor` is cancelled
    /// when that one has ended; until then the store is not maintained.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_after(
        config: &Recordings,
        clock: Arc<dyn Clock>,
        predecessor: CancellationToken,
    ) -> Result<Self, OpenError> {
        let is_successor = !predecessor.is_cancelled();
        let Some(store) = open::open(config, is_successor).await? else {
            return Ok(Self::default());
        };
        Ok(Self::with_store(store, config, clock, predecessor))
    }

    fn with_store(
        store: Store,
        config: &Recordings,
        clock: Arc<dyn Clock>,
        predecessor: CancellationToken,
    ) -> Self {
        let inner = Arc::new(Inner::new(store, config, clock, predecessor));
        inner.tasks.spawn(maintenance::run(Arc::clone(&inner)));
        Self { inner: Some(inner) }
    }

    /// True if a store is configured.
    pub fn is_configured(&self) -> bool {
        self.inner.is_some()
    }

    /// True if the last write succeeded, or if no store is configured.
    pub fn is_healthy(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.is_healthy())
    }

    /// Notifies of each change of the store: an object was stored, removed or counted, or could not
    /// be stored. The value is that of [`is_healthy`](Self::is_healthy). `None` if no store is
    /// configured.
    pub fn changes(&self) -> Option<watch::Receiver<bool>> {
        Some(self.inner.as_ref()?.healthy.subscribe())
    }

    /// Starts a recording.
    ///
    /// # Errors
    /// [`RecordingUnavailableError`]: the policy is `strict` and nothing can be stored now, or the
    /// session must be recorded and no store is configured.
    pub fn start(&self, meta: &Meta) -> Result<Recording, RecordingUnavailableError> {
        let recorded = meta.session.recording_mode == RecordingMode::Recorded;
        let Some(inner) = &self.inner else {
            let nowhere = Recording {
                queue: Arc::new(Queue::new(RecordingPolicy::BestEffort, false)),
            };
            return if recorded {
                Err(RecordingUnavailableError)
            } else {
                Ok(nowhere)
            };
        };
        let full = inner.usage.of(&meta.project_id) >= inner.max_project;
        if recorded && inner.policy == RecordingPolicy::Strict && (full || !inner.is_healthy()) {
            return Err(RecordingUnavailableError);
        }
        let queue = Arc::new(Queue::new(inner.policy, recorded));
        let id = meta.session.id.clone();
        inner.running.lock().insert(id, Arc::clone(&queue));
        let writer = writer::Writer::new(Arc::clone(inner), Arc::clone(&queue), meta);
        inner.tasks.spawn_on(writer.run(), &inner.runtime);
        Ok(Recording { queue })
    }

    /// Stops the maintenance, because another process is about to record in this store. The
    /// recordings of this process continue.
    pub fn stop_maintenance(&self) {
        if let Some(inner) = &self.inner {
            inner.maintenance_stop.cancel();
        }
    }

    /// Waits until all entries of ended recordings are stored, and unlocks the store. Recordings
    /// that have not ended are ended as interrupted.
    pub async fn finish(&self) {
        let Some(inner) = &self.inner else {
            return;
        };
        inner.stop.cancel();
        for queue in inner.running.lock().values() {
            queue.end(End::Interrupted);
        }
        inner.tasks.close();
        inner.tasks.wait().await;
        self.unlock();
    }

    /// Unlocks the store, even with writes in progress: another process may then open it.
    pub fn unlock(&self) {
        // The maintenance would lock it again.
        self.stop_maintenance();
        let folder = self
            .inner
            .as_ref()
            .and_then(|inner| inner.store.folder.as_ref());
        if let Some(Err(error)) = folder.map(|folder| folder.lock.release()) {
            warn!(%error, "the folder of recordings stays locked");
        }
    }
}

impl Recording {
    /// Adds an entry, and returns the new pace of the session. Never waits. After
    /// [`RecordingPace::Hold`] the caller adds at most the entries that were already in flight.
    pub fn record(&self, entry: Entry, at: Timestamp) -> RecordingPace {
        self.queue.push(entry, at)
    }

    /// Notifies of each change of the pace.
    pub fn pace(&self) -> watch::Receiver<RecordingPace> {
        self.queue.pace()
    }

    /// Ends the recording, with the session as lists show it from now on. Waiting entries are
    /// stored after this returns.
    pub fn finish(&self, session: &api::webtty::Session) {
        self.queue.end(End::Finished(Box::new(session.clone())));
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.queue.end(End::Interrupted);
    }
}

impl Inner {
    fn new(
        store: Store,
        config: &Recordings,
        clock: Arc<dyn Clock>,
        predecessor: CancellationToken,
    ) -> Self {
        let stop = CancellationToken::new();
        Self {
            store,
            policy: config.policy,
            max_session: config.max_bytes_per_session,
            max_project: config.max_bytes_per_project,
            retention: config.retention,
            clock,
            runtime: Handle::current(),
            healthy: watch::Sender::new(true),
            usage: Usage::default(),
            running: Mutex::default(),
            ended: Mutex::default(),
            readers: Readers::new(MAX_READERS, MAX_READERS / 2),
            lists: Readers::new(MAX_LISTS, MAX_LISTS / 4),
            tasks: TaskTracker::new(),
            maintenance_stop: stop.child_token(),
            stop,
            predecessor,
        }
    }

    fn is_healthy(&self) -> bool {
        *self.healthy.borrow()
    }

    /// Notifies receivers of [`Recorder::changes`].
    fn notify_changed(&self) {
        self.healthy.send_modify(|_| {});
    }

    fn mark_healthy(&self) {
        if !self.healthy.send_replace(true) {
            info!("recordings can be stored again");
        }
    }

    fn mark_failed(&self, error: &dyn std::fmt::Display) {
        if self.healthy.send_replace(false) {
            warn!(%error, policy = %self.policy, "recordings cannot be stored");
        }
    }
}
