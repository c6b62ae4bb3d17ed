//! What happened in sessions, on its way to where it is kept, and back.
//!
//! A session begins its recording with [`Recorder::start`], gives each entry to
//! [`Recording::record`], which never waits, and ends it with [`Recording::finish`]. Entries wait in a
//! bounded queue; a task for each recording makes records of them and stores them sealed (`writer`).
//! Whether a session waits for its recording is a policy of this module, and what a session has to do
//! about it is a [`Pace`]: go on, hold, or end.
//!
//! `layout` says what is where, `place` what that is (a folder, or a bucket of an S3-compatible
//! store), `tend` ends what an engine that was killed left open and removes what is old, `read`,
//! `export` and `search` are the way back.

mod export;
mod key;
mod layout;
mod place;
mod queue;
mod read;
mod readers;
mod search;
mod tend;
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
pub use self::place::OpenError;
pub use self::read::{Unreadable, Verdict};
pub use self::search::{Hit, MAX_HITS, Search, SearchAnswer};

/// Makes recordings, and reads them. One for each engine.
#[derive(Debug, Default)]
pub struct Recorder {
    /// `None`: there is no place for recordings.
    inner: Option<Arc<Inner>>,
}

/// What is known of a session when it begins.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Id of the project.
    pub project_id: Arc<str>,
    /// The session as lists show it. Its `recording_mode` says whether there will be entries: of a
    /// private session it is kept that it took place.
    pub session: api::webtty::Session,
    /// The tunnel of its server: who sees that sees the session, later on, too.
    pub tunnel: Arc<Tunnel>,
    /// The payloads of entries are ciphertext of the two ends.
    pub sealed: bool,
}

/// A session that is kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// As lists show it.
    pub session: api::webtty::Session,
    /// The tunnel of its server, as it was.
    pub tunnel: Tunnel,
}

/// What a session has to do about its recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Go on: there is room, or nobody minds a gap.
    Go,
    /// Take nothing from anybody until there is room.
    Hold,
    /// End: it may not go on unrecorded.
    End,
}

/// The recording of a session may not be made, and without it the session may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session cannot be recorded")]
pub struct NotRecorded;

/// The recording of one session. Dropping it is a break: what was recorded is kept, its end is not
/// known.
#[derive(Debug)]
pub struct Recording {
    queue: Arc<Queue>,
}

/// What all recordings of an engine share.
#[derive(Debug)]
struct Inner {
    store: Store,
    policy: RecordingPolicy,
    max_session: u64,
    max_project: u64,
    retention: Option<std::time::Duration>,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    /// Cleared when something could not be stored, set when something could; told each time, and
    /// when something was removed or counted.
    healthy: watch::Sender<bool>,
    usage: Usage,
    /// Recordings that this process makes.
    running: Mutex<HashMap<String, Arc<Queue>>>,
    /// Metadata of sessions that are over, for lists.
    ended: Mutex<HashMap<String, Arc<StoredSession>>>,
    /// Exports, verifications and searches at the same time: each has a thread and some megabytes.
    readers: Arc<Readers>,
    /// Lists at the same time: each asks the store for up to thousands of objects.
    lists: Arc<Readers>,
    tasks: TaskTracker,
    /// The engine stops: nothing is tried again and again any more.
    stop: CancellationToken,
}

/// See [`Inner::readers`].
const MAX_READERS: usize = 8;

/// See [`Inner::lists`]. A list asks for 16 objects at once.
const MAX_LISTS: usize = 32;

impl Recorder {
    /// Takes the place that the configuration names, and looks after it from now on. The calling
    /// runtime is where recordings are stored.
    ///
    /// # Errors
    /// [`OpenError`]: the folder or the key cannot be used. A store over the network that does not
    /// answer is no error here; then nothing is recorded until it does.
    pub async fn open(config: &Recordings, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let Some(store) = place::open(config).await? else {
            return Ok(Self::default());
        };
        Ok(Self::over(store, config, clock))
    }

    fn over(store: Store, config: &Recordings, clock: Arc<dyn Clock>) -> Self {
        let inner = Arc::new(Inner::new(store, config, clock));
        inner.tasks.spawn(tend::run(Arc::clone(&inner)));
        Self { inner: Some(inner) }
    }

    /// Whether recordings have a place.
    pub fn is_configured(&self) -> bool {
        self.inner.is_some()
    }

    /// Whether what was to be stored last could be; where there is no place, nothing fails.
    pub fn is_healthy(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.is_healthy())
    }

    /// Tells each time the place has changed: something was stored, removed or counted, or could not be
    /// stored. Its value is that of [`is_healthy`](Self::is_healthy). `None` where there is no place.
    pub fn changes(&self) -> Option<watch::Receiver<bool>> {
        Some(self.inner.as_ref()?.healthy.subscribe())
    }

    /// Begins a recording.
    ///
    /// # Errors
    /// [`NotRecorded`]: the policy is `strict` and nothing can be stored now, or there is no place
    /// for a session that is to be recorded.
    pub fn start(&self, meta: &Meta) -> Result<Recording, NotRecorded> {
        let recorded = meta.session.recording_mode == RecordingMode::Recorded;
        let Some(inner) = &self.inner else {
            let nowhere = Recording {
                queue: Arc::new(Queue::new(RecordingPolicy::BestEffort, false)),
            };
            return if recorded {
                Err(NotRecorded)
            } else {
                Ok(nowhere)
            };
        };
        let full = inner.usage.of(&meta.project_id) >= inner.max_project;
        if recorded && inner.policy == RecordingPolicy::Strict && (full || !inner.is_healthy()) {
            return Err(NotRecorded);
        }
        let queue = Arc::new(Queue::new(inner.policy, recorded));
        let id = meta.session.id.clone();
        inner.running.lock().insert(id, Arc::clone(&queue));
        let writer = writer::Writer::new(Arc::clone(inner), Arc::clone(&queue), meta);
        inner.tasks.spawn_on(writer.run(), &inner.runtime);
        Ok(Recording { queue })
    }

    /// Waits until everything is stored that recordings were given before they ended, and lets go
    /// of the place. Recordings that have not ended are over, too.
    pub async fn finish(&self) {
        let Some(inner) = &self.inner else {
            return;
        };
        inner.stop.cancel();
        for queue in inner.running.lock().values() {
            queue.end(End::Broken);
        }
        inner.tasks.close();
        inner.tasks.wait().await;
        self.let_go();
    }

    /// Lets go of the place, whatever is under way: another process may take it.
    pub fn let_go(&self) {
        let folder = self
            .inner
            .as_ref()
            .and_then(|inner| inner.store.folder.as_ref());
        if let Some(Err(error)) = folder.map(|folder| folder.lock.unlock()) {
            warn!(%error, "the folder of recordings stays locked");
        }
    }
}

impl Recording {
    /// Takes an entry, and says what the session has to do from now on. Never waits; the caller
    /// gives no more than what was under way once it is told to hold.
    pub fn record(&self, entry: Entry, at: Timestamp) -> Pace {
        self.queue.push(entry, at)
    }

    /// Tells whenever the session has to do something else.
    pub fn pace(&self) -> watch::Receiver<Pace> {
        self.queue.pace()
    }

    /// The session is over, and this is what lists show of it from now on. What waits is stored after
    /// this returns.
    pub fn finish(&self, session: &api::webtty::Session) {
        self.queue.end(End::Finished(Box::new(session.clone())));
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.queue.end(End::Broken);
    }
}

impl Inner {
    fn new(store: Store, config: &Recordings, clock: Arc<dyn Clock>) -> Self {
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
            stop: CancellationToken::new(),
        }
    }

    fn is_healthy(&self) -> bool {
        *self.healthy.borrow()
    }

    /// Tells that the place, or what is known of it, is not as before.
    fn changed(&self) {
        self.healthy.send_modify(|_| {});
    }

    fn stored(&self) {
        if !self.healthy.send_replace(true) {
            info!("recordings are stored again");
        }
    }

    fn not_stored(&self, error: &dyn std::fmt::Display) {
        if self.healthy.send_replace(false) {
            warn!(%error, policy = %self.policy, "recordings cannot be stored");
        }
    }
}
