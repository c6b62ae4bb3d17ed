//! The handle: it provides taps for agents and updates for subscribers.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use client::{
    Target,
    tap::{Opener, StreamTap, Tap, Visit},
};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::update::{InspectorInfo, Update};
use crate::{
    Summary,
    decode::Decoder,
    har,
    store::{Origin, Store},
    view::Secrets,
};

/// Records exchanges. Clones of the handle share the records.
#[derive(Clone)]
pub struct Inspector {
    shared: Arc<InspectorState>,
}

struct InspectorState {
    when: RecordingMode,
    watchers: AtomicUsize,
    store: Mutex<Store>,
    updates: broadcast::Sender<Update>,
    clock: Clock,
    about: Mutex<InspectorInfo>,
}

/// Condition for recording streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingMode {
    /// From the first stream on.
    Always,
    /// Streams that start while there is a [`Subscription`]; the others cost nothing.
    Watched,
}

impl Inspector {
    /// Creates an inspector without records.
    pub fn new(when: RecordingMode) -> Self {
        let (updates, _) = broadcast::channel(UPDATES);
        Self {
            shared: Arc::new(InspectorState {
                when,
                watchers: AtomicUsize::new(0),
                store: Mutex::default(),
                updates,
                clock: Clock::start(),
                about: Mutex::default(),
            }),
        }
    }

    /// The tap for the agent of a tunnel to this target: [`client::ForwardOptions::with_tap`].
    pub fn tap(&self, to: Target) -> Arc<dyn Tap> {
        self.tap_opened(to, None)
    }

    /// The same for a tunnel in which the edge uses TLS with the service, if there is an `opener`.
    pub fn tap_opened(&self, to: Target, opener: Option<Opener>) -> Arc<dyn Tap> {
        Arc::new(InspectorTap {
            shared: Arc::clone(&self.shared),
            to: Arc::new(to),
            opener,
        })
    }

    /// The current list, and every later change.
    pub fn subscribe(&self) -> Subscription {
        self.shared.watchers.fetch_add(1, Ordering::Relaxed);
        let (list, updates) = self.shared.join();
        Subscription {
            shared: Arc::clone(&self.shared),
            list,
            updates,
        }
    }

    /// Removes all records.
    pub fn clear(&self) {
        self.change(Store::clear);
    }

    /// True if new requests are not recorded.
    pub fn is_paused(&self) -> bool {
        self.read(Store::is_paused)
    }

    /// Pauses or resumes the recording of new requests. Requests that started earlier are still
    /// recorded.
    pub fn pause(&self, paused: bool) {
        self.change(|store| store.pause(paused));
    }

    /// The records as HAR 1.2: a JSON document. Secrets are masked unless `reveal` is set;
    /// `version` is the version of the program.
    pub fn har(&self, version: &str, reveal: bool) -> String {
        // The bodies are decompressed from a copy, because streams wait while the store is locked.
        let exchanges: Vec<_> = self.read(|store| store.iter().cloned().collect());
        har::archive(exchanges.iter(), version, Secrets::of(reveal)).to_string()
    }

    /// Description of the inspected tunnel.
    pub fn about(&self) -> InspectorInfo {
        self.shared.about.lock().clone()
    }

    /// Sets the description of the inspected tunnel.
    pub fn describe(&self, about: InspectorInfo) {
        self.shared.about.lock().clone_from(&about);
        drop(self.shared.updates.send(Update::Info(about)));
    }

    /// A tap for a replayed request.
    pub(crate) fn replay_tap(&self, origin: Origin) -> Box<dyn StreamTap> {
        Box::new(RecordedStream::new(&self.shared, origin))
    }

    /// Reads the store under its lock. Streams wait meanwhile, so `look` must be fast.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.shared.store.lock())
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Store)) {
        self.shared.change(|store, _| change(store));
    }
}

impl fmt::Debug for Inspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspector")
            .field("when", &self.shared.when)
            .finish_non_exhaustive()
    }
}

impl InspectorState {
    /// Changes the store, and sends the updates in the same order. It sends under the lock, which
    /// is safe because the channel never blocks.
    fn change(&self, change: impl FnOnce(&mut Store, Timestamp)) {
        let now = self.clock.now();
        let mut store = self.store.lock();
        change(&mut store, now);
        for update in store.take_updates() {
            // There may be no subscribers.
            drop(self.updates.send(update));
        }
    }

    /// The list, and the changes from there on.
    fn join(&self) -> (Vec<Summary>, broadcast::Receiver<Update>) {
        let store = self.store.lock();
        (store.summaries(), self.updates.subscribe())
    }

    fn is_looked_at(&self) -> bool {
        self.when == RecordingMode::Always || self.watchers.load(Ordering::Relaxed) > 0
    }
}

/// A subscription to the records, until it is dropped.
pub struct Subscription {
    shared: Arc<InspectorState>,
    list: Vec<Summary>,
    updates: broadcast::Receiver<Update>,
}

impl Subscription {
    /// The exchanges at the start of the subscription, oldest first; after [`Update::Missed`] the
    /// current ones. A second call returns none.
    pub fn list(&mut self) -> Vec<Summary> {
        std::mem::take(&mut self.list)
    }

    /// The next change; `None` when there will be none. Cancel safe.
    pub async fn next(&mut self) -> Option<Update> {
        match self.updates.recv().await {
            Ok(update) => Some(update),
            Err(broadcast::error::RecvError::Lagged(_)) => {
                (self.list, self.updates) = self.shared.join();
                Some(Update::Missed)
            }
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

struct InspectorTap {
    shared: Arc<InspectorState>,
    to: Arc<Target>,
    opener: Option<Opener>,
}

impl Tap for InspectorTap {
    fn stream(&self, visit: &Visit) -> Option<Box<dyn StreamTap>> {
        if !self.shared.is_looked_at() {
            return None;
        }
        let origin = Origin {
            to: Arc::clone(&self.to),
            tls: None,
            source_ip: visit.source_ip,
            replay: None,
        };
        Some(Box::new(RecordedStream::new(&self.shared, origin)))
    }

    fn opener(&self) -> Option<&Opener> {
        self.opener.as_ref()
    }
}

/// A stream that is being recorded.
struct RecordedStream {
    shared: Arc<InspectorState>,
    decoder: Decoder,
}

impl RecordedStream {
    fn new(shared: &Arc<InspectorState>, origin: Origin) -> Self {
        Self {
            shared: Arc::clone(shared),
            decoder: Decoder::new(origin),
        }
    }

    fn end(&mut self, error: Option<&str>) {
        let decoder = &mut self.decoder;
        self.shared
            .change(|store, now| decoder.ended(error, store, now));
    }
}

impl StreamTap for RecordedStream {
    fn opened(&mut self, name: &str) {
        self.decoder.opened(name);
    }

    fn to_service(&mut self, bytes: &[u8]) {
        let decoder = &mut self.decoder;
        self.shared
            .change(|store, now| decoder.visitor_sent(bytes, store, now));
    }

    fn to_visitor(&mut self, bytes: &[u8]) {
        let decoder = &mut self.decoder;
        self.shared
            .change(|store, now| decoder.service_sent(bytes, store, now));
    }

    fn ended(mut self: Box<Self>, error: Option<&str>) {
        self.end(error);
    }
}

impl Drop for RecordedStream {
    /// Has no effect after an explicit end, because the decoder then ignores further calls.
    fn drop(&mut self) {
        self.end(Some("the agent ended the connection"));
    }
}

/// Wall-clock time at the start, and the monotonic clock from there on: durations are correct, and
/// an end is never before its start.
#[derive(Debug)]
struct Clock {
    wall: Timestamp,
    monotonic: Instant,
}

impl Clock {
    fn start() -> Self {
        Self {
            wall: Timestamp::now(),
            monotonic: Instant::now(),
        }
    }

    fn now(&self) -> Timestamp {
        let since = self.monotonic.elapsed();
        self.wall.checked_add(since).unwrap_or(self.wall)
    }
}

/// Number of updates that a receiver may be behind: a burst of a few hundred requests.
const UPDATES: usize = 1024;
