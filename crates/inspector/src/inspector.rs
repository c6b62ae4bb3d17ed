//! The inspector's handle: it provides taps for agents and updates for subscribers.

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
    tap::{StreamTap, Tap, TlsInterceptor, Visit},
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
    mode: RecordingMode,
    subscribers: AtomicUsize,
    store: Mutex<Store>,
    updates: broadcast::Sender<Update>,
    clock: Clock,
    info: Mutex<InspectorInfo>,
}

/// Condition for recording streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingMode {
    /// From the first stream on.
    Always,
    /// Streams that start while there is a [`Subscription`]; the others cost nothing.
    WhileSubscribed,
}

impl Inspector {
    /// Creates an inspector without records.
    pub fn new(mode: RecordingMode) -> Self {
        let (updates, _) = broadcast::channel(UPDATE_CAPACITY);
        Self {
            shared: Arc::new(InspectorState {
                mode,
                subscribers: AtomicUsize::new(0),
                store: Mutex::default(),
                updates,
                clock: Clock::start(),
                info: Mutex::default(),
            }),
        }
    }

    /// Creates the tap for a tunnel to this target, for [`client::ForwardOptions::with_tap`].
    pub fn tap(&self, target: Target) -> Arc<dyn Tap> {
        self.tap_with_opener(target, None)
    }

    /// As [`tap`](Self::tap). `opener` decrypts streams if the edge speaks TLS with the service.
    pub fn tap_with_opener(&self, to: Target, opener: Option<TlsInterceptor>) -> Arc<dyn Tap> {
        Arc::new(InspectorTap {
            shared: Arc::clone(&self.shared),
            target: Arc::new(to),
            opener,
        })
    }

    /// The current list, and every later change.
    pub fn subscribe(&self) -> Subscription {
        self.shared.subscribers.fetch_add(1, Ordering::Relaxed);
        let (list, updates) = self.shared.subscribe();
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
    pub fn set_paused(&self, paused: bool) {
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
    pub fn info(&self) -> InspectorInfo {
        self.shared.info.lock().clone()
    }

    /// Sets the description of the inspected tunnel.
    pub fn set_info(&self, about: InspectorInfo) {
        self.shared.info.lock().clone_from(&about);
        drop(self.shared.updates.send(Update::Info(about)));
    }

    /// A tap for a replayed request.
    pub(crate) fn replay_tap(&self, origin: Origin) -> Box<dyn StreamTap> {
        Box::new(RecordedStream::new(&self.shared, origin))
    }

    /// Reads the store under its lock. Streams wait meanwhile, so `query` must be fast.
    pub(crate) fn read<T>(&self, query: impl FnOnce(&Store) -> T) -> T {
        query(&self.shared.store.lock())
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Store)) {
        self.shared.change(|store, _| change(store));
    }
}

impl fmt::Debug for Inspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspector")
            .field("when", &self.shared.mode)
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

    /// The current list and a receiver of all later updates, taken under one lock.
    fn subscribe(&self) -> (Vec<Summary>, broadcast::Receiver<Update>) {
        let store = self.store.lock();
        (store.summaries(), self.updates.subscribe())
    }

    fn should_record(&self) -> bool {
        self.mode == RecordingMode::Always || self.subscribers.load(Ordering::Relaxed) > 0
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
                (self.list, self.updates) = self.shared.subscribe();
                Some(Update::Missed)
            }
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.subscribers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

struct InspectorTap {
    shared: Arc<InspectorState>,
    target: Arc<Target>,
    opener: Option<TlsInterceptor>,
}

impl Tap for InspectorTap {
    fn stream(&self, visit: &Visit) -> Option<Box<dyn StreamTap>> {
        if !self.shared.should_record() {
            return None;
        }
        let origin = Origin {
            to: Arc::clone(&self.target),
            tls: None,
            source_ip: visit.source_ip,
            replay: None,
        };
        Some(Box::new(RecordedStream::new(&self.shared, origin)))
    }

    fn opener(&self) -> Option<&TlsInterceptor> {
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

    fn has_request(&self) -> bool {
        self.decoder.has_request()
    }

    fn unreachable(mut self: Box<Self>, error: &str) {
        let Self { shared, decoder } = &mut *self;
        shared.change(|store, now| decoder.unreachable(error, store, now));
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
        let elapsed = self.monotonic.elapsed();
        self.wall.checked_add(elapsed).unwrap_or(self.wall)
    }
}

/// Capacity of the update channel: enough for a burst of a few hundred requests.
const UPDATE_CAPACITY: usize = 1024;
