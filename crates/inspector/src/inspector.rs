//! The handle: it gives taps to agents and news to those who look.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use client::tap::{StreamTap, Tap, Visit};
use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::Summary;

/// Records exchanges. A handle: clones share what is recorded.
#[derive(Clone, Debug)]
pub struct Inspector {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    when: When,
    watchers: AtomicUsize,
    list: Mutex<Vec<Summary>>,
    updates: broadcast::Sender<Update>,
}

/// When streams are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// From the first stream on.
    Always,
    /// Streams that begin while there is a [`Subscription`]; the others cost nothing.
    Watched,
}

/// What has changed.
#[derive(Clone, Debug)]
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
    /// The reader was too slow and missed some: [`Subscription::list`] has what is so now.
    Missed,
}

impl Inspector {
    /// An inspector that has seen nothing.
    pub fn new(when: When) -> Self {
        let (updates, _) = broadcast::channel(UPDATES);
        Self {
            shared: Arc::new(Shared {
                when,
                watchers: AtomicUsize::new(0),
                list: Mutex::default(),
                updates,
            }),
        }
    }

    /// What a tunnel's agent is given: [`client::Tunnel::forward_tapped`].
    pub fn tap(&self) -> Arc<dyn Tap> {
        Arc::new(InspectorTap {
            shared: Arc::clone(&self.shared),
        })
    }

    /// The list as it is now, and every change from there on.
    pub fn subscribe(&self) -> Subscription {
        let list = self.shared.list.lock();
        let updates = self.shared.updates.subscribe();
        let now = list.clone();
        drop(list);
        self.shared.watchers.fetch_add(1, Ordering::Relaxed);
        Subscription {
            shared: Arc::clone(&self.shared),
            list: now,
            updates,
        }
    }
}

/// Somebody who looks; dropped, they do not.
#[derive(Debug)]
pub struct Subscription {
    shared: Arc<Shared>,
    list: Vec<Summary>,
    updates: broadcast::Receiver<Update>,
}

impl Subscription {
    /// The exchanges when the subscription began, oldest first; after [`Update::Missed`] those of
    /// that moment. Taken: a second call gives none.
    pub fn list(&mut self) -> Vec<Summary> {
        std::mem::take(&mut self.list)
    }

    /// The next change; nothing when the inspector is gone. Cancel safe.
    pub async fn next(&mut self) -> Option<Update> {
        match self.updates.recv().await {
            Ok(update) => Some(update),
            Err(broadcast::error::RecvError::Lagged(_)) => {
                let list = self.shared.list.lock();
                self.updates = self.shared.updates.subscribe();
                self.list.clone_from(&list);
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

struct InspectorTap {
    shared: Arc<Shared>,
}

impl Tap for InspectorTap {
    fn stream(&self, visit: &Visit) -> Option<Box<dyn StreamTap>> {
        let looked_at =
            self.shared.when == When::Always || self.shared.watchers.load(Ordering::Relaxed) > 0;
        looked_at.then(|| {
            Box::new(Stream {
                _shared: Arc::clone(&self.shared),
                _source_ip: visit.source_ip,
            }) as Box<dyn StreamTap>
        })
    }
}

struct Stream {
    _shared: Arc<Shared>,
    _source_ip: Option<IpAddr>,
}

impl StreamTap for Stream {
    fn to_service(&mut self, _bytes: &[u8]) {}
    fn to_visitor(&mut self, _bytes: &[u8]) {}
    fn ended(self: Box<Self>, _error: Option<&str>) {}
}

/// Changes that a reader may be behind: a burst of some hundred requests.
const UPDATES: usize = 1024;
