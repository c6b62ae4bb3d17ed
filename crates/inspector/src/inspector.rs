//! The handle: it gives taps to agents and news to those who look.

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
use serde::Serialize;
use tokio::sync::broadcast;

use crate::{
    Summary,
    decode::Decoder,
    har,
    store::{Origin, Store},
    view::Secrets,
};

/// Records exchanges. A handle: clones share what is recorded.
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
    about: Mutex<About>,
}

/// What is looked at, for the head of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct About {
    /// What visitors use; nothing while the tunnel is not online.
    pub forwarding: Option<String>,
    /// Where requests go.
    pub target: String,
    /// Why nothing can be seen, where that is so: one sentence.
    pub unseen: Option<String>,
}

/// When streams are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingMode {
    /// From the first stream on.
    Always,
    /// Streams that begin while there is a [`Subscription`]; the others cost nothing.
    Watched,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Update {
    /// An exchange began, or its line changed. The id tells which.
    Exchange(Summary),
    /// Exchanges left the list: the oldest for want of room, or all of them because somebody
    /// cleared it. These have an id up to this one.
    Gone {
        /// The newest that left.
        up_to: u64,
    },
    /// Recording was paused, or goes on.
    Paused(bool),
    /// What is looked at is another, or has another address.
    About(About),
    /// The reader was too slow and missed some: [`Subscription::list`] has what is so now.
    Missed,
}

impl Inspector {
    /// An inspector that has seen nothing.
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

    /// The tap for the agent of a tunnel to this target: [`client::Forwarding::with_tap`].
    pub fn tap(&self, to: Target) -> Arc<dyn Tap> {
        self.tap_opened(to, None)
    }

    /// The same, for a tunnel in which the edge speaks TLS with the service where there is an
    /// `opener`.
    pub fn tap_opened(&self, to: Target, opener: Option<Opener>) -> Arc<dyn Tap> {
        Arc::new(InspectorTap {
            shared: Arc::clone(&self.shared),
            to: Arc::new(to),
            opener,
        })
    }

    /// The list as it is now, and every change from there on.
    pub fn subscribe(&self) -> Subscription {
        self.shared.watchers.fetch_add(1, Ordering::Relaxed);
        let (list, updates) = self.shared.join();
        Subscription {
            shared: Arc::clone(&self.shared),
            list,
            updates,
        }
    }

    /// Forgets what was recorded.
    pub fn clear(&self) {
        self.change(Store::clear);
    }

    /// Whether requests that come are left out.
    pub fn is_paused(&self) -> bool {
        self.read(Store::is_paused)
    }

    /// Leaves requests that come out, or records them again. Those that began before go on.
    pub fn pause(&self, paused: bool) {
        self.change(|store| store.pause(paused));
    }

    /// What was recorded, as HAR 1.2: a JSON document. Secrets are masked unless `reveal` says
    /// otherwise; `version` is the program's.
    pub fn har(&self, version: &str, reveal: bool) -> String {
        // The bodies are decompressed from a copy: streams wait while the store is read.
        let exchanges: Vec<_> = self.read(|store| store.iter().cloned().collect());
        har::archive(exchanges.iter(), version, Secrets::of(reveal)).to_string()
    }

    /// What is looked at.
    pub fn about(&self) -> About {
        self.shared.about.lock().clone()
    }

    /// Says what is looked at.
    pub fn describe(&self, about: About) {
        self.shared.about.lock().clone_from(&about);
        drop(self.shared.updates.send(Update::About(about)));
    }

    /// A tap for a request that is sent from here.
    pub(crate) fn replay_tap(&self, origin: Origin) -> Box<dyn StreamTap> {
        Box::new(RecordedStream::new(&self.shared, origin))
    }

    /// Looks at what was recorded. Streams wait meanwhile: take what is needed and go.
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
    /// Changes what was recorded, and tells of it in the same order: under the lock, which makes
    /// no one wait, since the channel never does.
    fn change(&self, change: impl FnOnce(&mut Store, Timestamp)) {
        let now = self.clock.now();
        let mut store = self.store.lock();
        change(&mut store, now);
        for update in store.take_news() {
            // Nobody may be looking.
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

/// Somebody who looks; dropped, they do not.
pub struct Subscription {
    shared: Arc<InspectorState>,
    list: Vec<Summary>,
    updates: broadcast::Receiver<Update>,
}

impl Subscription {
    /// The exchanges when the subscription began, oldest first; after [`Update::Missed`] those of
    /// that moment. Taken: a second call gives none.
    pub fn list(&mut self) -> Vec<Summary> {
        std::mem::take(&mut self.list)
    }

    /// The next change; nothing when there will be none. Cancel safe.
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

/// A stream that is recorded.
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
    /// Told once: a decoder that has ended takes no more.
    fn drop(&mut self) {
        self.end(Some("the agent ended the connection"));
    }
}

/// The wall's clock when it was started, and the monotonic one from there: durations are true,
/// and nothing ends before it began.
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

/// Changes that a reader may be behind: a burst of some hundred requests.
const UPDATES: usize = 1024;
