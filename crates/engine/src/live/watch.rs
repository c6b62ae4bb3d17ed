//! Watchers: a view of the live state, and a bounded queue of its changes.

use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use tokio::sync::mpsc;
use types::client::Client;
use types::event::Event;
use types::id::{EventId, unix_millis};
use types::tunnel::Tunnel;

use super::change::{Change, Delivery, SharedEvent};
use super::view::View;
use crate::random::random_bytes;

/// The live state at the instant of subscription, filtered, oldest first.
#[derive(Debug)]
pub struct Snapshot {
    pub at: Timestamp,
    pub clients: Vec<Arc<Client>>,
    pub tunnels: Vec<Arc<Tunnel>>,
}

/// A snapshot and every change after it, without gaps or duplicates (EN-3).
#[derive(Debug)]
pub struct Subscription {
    pub snapshot: Snapshot,
    pub events: Events,
    pub view: Arc<View>,
}

/// The changes for one watcher, in order. Dropping it ends the subscription.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<Arc<SharedEvent>>,
    ended: Arc<OnceLock<SubscriptionEnd>>,
    view: Arc<View>,
}

/// Reasons why a subscription ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubscriptionEnd {
    /// More events were waiting for the watcher than its queue can contain.
    #[error("too slow: events arrived faster than they were read")]
    TooSlow,
    /// The engine is stopping.
    #[error("the engine is stopping")]
    Stopped,
}

/// The engine has reached its limit of watchers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no more watchers can subscribe")]
pub struct TooManyWatchersError;

impl Subscription {
    /// Writes the first event of a stream: `state.initial`.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn write_initial(&self, out: &mut impl io::Write) -> io::Result<()> {
        let id = EventId::new(unix_millis(self.snapshot.at), random_bytes());
        self.view.write_initial(id, &self.snapshot, out)
    }
}

impl Events {
    /// Waits for the next change. Cancel-safe: a change that was not returned is not lost.
    ///
    /// # Errors
    /// [`SubscriptionEnd`], once, after every event that was queued before the end.
    pub async fn next(&mut self) -> Result<Delivery, SubscriptionEnd> {
        match self.receiver.recv().await {
            Some(event) => Ok(Delivery::new(event, Arc::clone(&self.view))),
            None => Err(self
                .ended
                .get()
                .copied()
                .unwrap_or(SubscriptionEnd::Stopped)),
        }
    }
}

/// Every change of all projects, for the engine itself.
#[derive(Debug)]
pub struct AllChanges {
    receiver: mpsc::Receiver<Arc<SharedEvent>>,
    lost: Arc<AtomicU64>,
}

impl AllChanges {
    /// Waits for the next change. Cancel-safe.
    pub async fn event(&mut self) -> Option<Event> {
        self.receiver.recv().await.map(|event| event.full_event())
    }

    /// The next change, if one is waiting.
    pub fn try_event(&mut self) -> Option<Event> {
        self.receiver
            .try_recv()
            .ok()
            .map(|event| event.full_event())
    }

    /// The counter of changes that did not fit into the queue.
    pub fn lost_count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }
}

/// All watchers; protected by the owner's lock.
#[derive(Debug)]
pub(super) struct Watchers {
    listening: Vec<Watcher>,
    /// The receiver of all changes, and the number of changes that did not fit into its queue.
    observer: Option<(mpsc::Sender<Arc<SharedEvent>>, Arc<AtomicU64>)>,
    capacity: usize,
    queue: usize,
    dropped: u64,
    stopped: bool,
}

#[derive(Debug)]
struct Watcher {
    view: Arc<View>,
    sender: mpsc::Sender<Arc<SharedEvent>>,
    ended: Arc<OnceLock<SubscriptionEnd>>,
}

impl Watchers {
    pub(super) fn new(capacity: usize, queue: usize) -> Self {
        Self {
            listening: Vec::new(),
            observer: None,
            capacity,
            queue: queue.max(1),
            dropped: 0,
            stopped: false,
        }
    }

    /// Subscribes to all changes from now on, including those during a drain. Changes beyond
    /// `queue` waiting ones are lost, and counted.
    pub(super) fn subscribe_all(&mut self, queue: usize) -> AllChanges {
        let (sender, receiver) = mpsc::channel(queue);
        let lost = Arc::<AtomicU64>::default();
        self.observer = Some((sender, Arc::clone(&lost)));
        AllChanges { receiver, lost }
    }

    /// Adds a watcher; `share` is the limit of its project.
    pub(super) fn add(
        &mut self,
        view: Arc<View>,
        share: Option<usize>,
    ) -> Result<Events, TooManyWatchersError> {
        if self.count() >= self.capacity {
            return Err(TooManyWatchersError);
        }
        if let Some(share) = share {
            let of_project = |watcher: &&Watcher| watcher.view.project == view.project;
            if self.listening.iter().filter(of_project).count() >= share {
                return Err(TooManyWatchersError);
            }
        }
        let (sender, receiver) = mpsc::channel(self.queue);
        let ended = Arc::new(OnceLock::new());
        let events = Events {
            receiver,
            ended: Arc::clone(&ended),
            view: Arc::clone(&view),
        };
        // Once stopped, the sender is dropped, so the subscription ends before its first event.
        if !self.stopped {
            self.listening.push(Watcher {
                view,
                sender,
                ended,
            });
        }
        Ok(events)
    }

    /// Sends a change to every watcher. Never waits: a full queue ends its watcher.
    pub(super) fn publish(&mut self, change: &Change) {
        if let Some((sender, lost)) = &self.observer
            && let Some(event) = change.full_event()
            && sender.try_send(event).is_err()
        {
            lost.fetch_add(1, Ordering::Relaxed);
        }
        let dropped = &mut self.dropped;
        self.listening.retain(|watcher| {
            let Some(event) = change.event_for(&watcher.view) else {
                return !watcher.sender.is_closed();
            };
            match watcher.sender.try_send(event) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Closed(_)) => false,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    // Only this code sets it, so it is still empty.
                    watcher.ended.get_or_init(|| SubscriptionEnd::TooSlow);
                    *dropped += 1;
                    false
                }
            }
        });
    }

    /// Number of watchers that are still connected.
    pub(super) fn count(&mut self) -> usize {
        self.listening.retain(|watcher| !watcher.sender.is_closed());
        self.listening.len()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Ends every subscription after its queued events, and each later one after its snapshot.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
        self.listening.clear();
    }
}
