//! Queue between a session and the task that stores its recording.

use std::collections::VecDeque;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tty::recording::{Entry, MAX_PAYLOAD};

use super::RecordingPace;
use crate::config::RecordingPolicy;

/// Queued bytes at which the session must hold: as much as one segment takes.
const HOLD_BYTES: usize = 1024 * 1024;

/// Maximum of queued bytes. A session that must hold has far less than the difference in flight.
const MAX_QUEUED_BYTES: usize = 4 * HOLD_BYTES;

/// Bytes that an entry takes in addition to its payload.
const ENTRY_OVERHEAD: usize = 256;

/// End of a recording.
#[derive(Debug)]
pub(super) enum End {
    /// The session finished; this is its final state for lists.
    Finished(Box<api::webtty::Session>),
    /// The session was dropped without an end.
    Interrupted,
}

#[derive(Debug)]
pub(super) struct Queue {
    /// False for a private session, whose entries are not kept.
    recorded: bool,
    policy: RecordingPolicy,
    state: Mutex<State>,
    pace: watch::Sender<RecordingPace>,
    /// Notified when the queue has an entry or an end.
    some: Notify,
    /// Notified when a flush is due: enough entries, or an end.
    urgent: Notify,
}

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<(Entry, Timestamp)>,
    bytes: usize,
    lost: u64,
    /// The store fails. With the policy `best_effort` the session continues meanwhile.
    failing: bool,
    end: Option<End>,
    ended: bool,
}

/// Content of the queue.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) entries: VecDeque<(Entry, Timestamp)>,
    /// Number of entries that did not fit.
    pub(super) lost: u64,
    pub(super) end: Option<End>,
}

impl Queue {
    pub(super) fn new(policy: RecordingPolicy, recorded: bool) -> Self {
        Self {
            recorded,
            policy,
            state: Mutex::default(),
            pace: watch::Sender::new(RecordingPace::Go),
            some: Notify::new(),
            urgent: Notify::new(),
        }
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.recorded
    }

    pub(super) fn pace(&self) -> watch::Receiver<RecordingPace> {
        self.pace.subscribe()
    }

    pub(super) fn push(&self, entry: Entry, at: Timestamp) -> RecordingPace {
        if !self.recorded {
            return RecordingPace::Go;
        }
        let mut state = self.state.lock();
        if state.ended || *self.pace.borrow() == RecordingPace::End {
            state.lost += 1;
        } else {
            let cost = entry.payload.len() + ENTRY_OVERHEAD;
            let room = if state.failing {
                HOLD_BYTES
            } else {
                MAX_QUEUED_BYTES
            };
            // A payload that is too large for a record would block all entries after it.
            if state.bytes + cost > room || entry.payload.len() > MAX_PAYLOAD {
                state.lost += 1;
            } else {
                state.bytes += cost;
                state.entries.push_back((entry, at));
            }
            self.some.notify_one();
        }
        if state.bytes >= HOLD_BYTES {
            self.urgent.notify_one();
            if !state.failing {
                self.set(RecordingPace::Hold);
            }
        }
        if state.lost > 0 && self.policy == RecordingPolicy::Strict {
            self.set(RecordingPace::End);
        }
        *self.pace.borrow()
    }

    /// Ends the recording. Only the first end counts.
    pub(super) fn end(&self, end: End) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.ended, true) {
            state.end = Some(end);
            self.some.notify_one();
            self.urgent.notify_one();
        }
    }

    /// Waits until the queue has an entry or an end.
    pub(super) async fn wait_for_entries(&self) {
        self.some.notified().await;
    }

    /// Waits until a flush is due.
    pub(super) async fn wait_for_flush(&self) {
        self.urgent.notified().await;
    }

    /// Takes the content of the queue.
    pub(super) fn take(&self) -> Batch {
        let mut state = self.state.lock();
        state.bytes = 0;
        Batch {
            entries: std::mem::take(&mut state.entries),
            lost: std::mem::take(&mut state.lost),
            end: state.end.take(),
        }
    }

    /// Records that the last batch was stored.
    pub(super) fn stored(&self) {
        let mut state = self.state.lock();
        state.failing = false;
        if state.bytes < HOLD_BYTES && *self.pace.borrow() == RecordingPace::Hold {
            self.set(RecordingPace::Go);
        }
    }

    /// Records that the last batch could not be stored.
    pub(super) fn failed(&self) {
        self.state.lock().failing = true;
        match self.policy {
            RecordingPolicy::Strict => self.set(RecordingPace::End),
            RecordingPolicy::BestEffort => self.set(RecordingPace::Go),
        }
    }

    /// Records that nothing more is stored, because a limit is reached.
    pub(super) fn full(&self) {
        if self.policy == RecordingPolicy::Strict {
            self.set(RecordingPace::End);
        }
    }

    /// Sets the pace. [`RecordingPace::End`] is final.
    fn set(&self, to: RecordingPace) {
        self.pace.send_if_modified(|pace| {
            let changes = *pace != to && *pace != RecordingPace::End;
            if changes {
                *pace = to;
            }
            changes
        });
    }
}
