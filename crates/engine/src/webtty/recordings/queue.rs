//! What waits between a session and the task that stores its recording.

use std::collections::VecDeque;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tty::recording::{Entry, MAX_PAYLOAD};

use super::Pace;
use crate::config::RecordingPolicy;

/// Bytes that wait before the session is told to hold: as much as one segment takes.
const HOLD: usize = 1024 * 1024;

/// Bytes that wait at most: what a session has under way when it is told to hold is far less.
const MOST: usize = 4 * HOLD;

/// What an entry takes beside its payload.
const ENTRY: usize = 256;

/// How a recording ends.
#[derive(Debug)]
pub(super) enum End {
    /// In order; this is what lists show.
    Finished(Box<api::webtty::Session>),
    /// Whoever recorded is gone.
    Broken,
}

#[derive(Debug)]
pub(super) struct Queue {
    /// Entries are kept; those of a private session are not.
    recorded: bool,
    policy: RecordingPolicy,
    state: Mutex<State>,
    pace: watch::Sender<Pace>,
    /// There is something.
    some: Notify,
    /// There is enough, or the end.
    urgent: Notify,
}

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<(Entry, Timestamp)>,
    bytes: usize,
    lost: u64,
    /// The store takes nothing: who does not mind a gap goes on.
    failing: bool,
    end: Option<End>,
    ended: bool,
}

/// What was waiting.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) entries: VecDeque<(Entry, Timestamp)>,
    /// Entries that there was no room for.
    pub(super) lost: u64,
    pub(super) end: Option<End>,
}

impl Queue {
    pub(super) fn new(policy: RecordingPolicy, recorded: bool) -> Self {
        Self {
            recorded,
            policy,
            state: Mutex::default(),
            pace: watch::Sender::new(Pace::Go),
            some: Notify::new(),
            urgent: Notify::new(),
        }
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.recorded
    }

    pub(super) fn pace(&self) -> watch::Receiver<Pace> {
        self.pace.subscribe()
    }

    pub(super) fn push(&self, entry: Entry, at: Timestamp) -> Pace {
        if !self.recorded {
            return Pace::Go;
        }
        let mut state = self.state.lock();
        if state.ended || *self.pace.borrow() == Pace::End {
            state.lost += 1;
        } else {
            let cost = entry.payload.len() + ENTRY;
            let room = if state.failing { HOLD } else { MOST };
            // What no record takes would stand in the way of all that comes after it.
            if state.bytes + cost > room || entry.payload.len() > MAX_PAYLOAD {
                state.lost += 1;
            } else {
                state.bytes += cost;
                state.entries.push_back((entry, at));
            }
            self.some.notify_one();
        }
        if state.bytes >= HOLD {
            self.urgent.notify_one();
            if !state.failing {
                self.set(Pace::Hold);
            }
        }
        if state.lost > 0 && self.policy == RecordingPolicy::Strict {
            self.set(Pace::End);
        }
        *self.pace.borrow()
    }

    /// The first end counts.
    pub(super) fn end(&self, end: End) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.ended, true) {
            state.end = Some(end);
            self.some.notify_one();
            self.urgent.notify_one();
        }
    }

    /// Waits until there is something.
    pub(super) async fn some(&self) {
        self.some.notified().await;
    }

    /// Waits until it should not wait any longer.
    pub(super) async fn urgent(&self) {
        self.urgent.notified().await;
    }

    /// Takes what waits.
    pub(super) fn take(&self) -> Batch {
        let mut state = self.state.lock();
        state.bytes = 0;
        Batch {
            entries: std::mem::take(&mut state.entries),
            lost: std::mem::take(&mut state.lost),
            end: state.end.take(),
        }
    }

    /// What was taken is stored.
    pub(super) fn stored(&self) {
        let mut state = self.state.lock();
        state.failing = false;
        if state.bytes < HOLD && *self.pace.borrow() == Pace::Hold {
            self.set(Pace::Go);
        }
    }

    /// What was taken could not be stored.
    pub(super) fn failed(&self) {
        self.state.lock().failing = true;
        match self.policy {
            RecordingPolicy::Strict => self.set(Pace::End),
            RecordingPolicy::BestEffort => self.set(Pace::Go),
        }
    }

    /// Nothing more is stored, for want of room.
    pub(super) fn full(&self) {
        if self.policy == RecordingPolicy::Strict {
            self.set(Pace::End);
        }
    }

    /// Nobody goes on after the end.
    fn set(&self, to: Pace) {
        self.pace.send_if_modified(|pace| {
            let changes = *pace != to && *pace != Pace::End;
            if changes {
                *pace = to;
            }
            changes
        });
    }
}
