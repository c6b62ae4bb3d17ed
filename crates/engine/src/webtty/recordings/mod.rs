//! What happened in sessions, on its way to where it is kept.
//!
//! A session begins its recording with [`Recorder::start`], gives each entry to
//! [`Recording::record`], which never waits, and ends it with [`Recording::finish`]. Entries wait in a
//! bounded queue. Whether a session waits for its recording is a policy of this module, and what a
//! session has to do about it is a [`Pace`]: go on, hold, or end.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tty::recording::Entry;

/// Makes recordings. One for each engine.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// Whether there is a place for recordings.
    configured: bool,
}

/// What is known of a session when it begins.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    /// Id of the project.
    pub(crate) project_id: Arc<str>,
    /// The session as lists show it. Its `recording_mode` says whether there will be entries: of a
    /// private session it is kept that it took place.
    pub(crate) session: api::webtty::Session,
    /// The payloads of entries are ciphertext of the two ends.
    pub(crate) sealed: bool,
}

/// What a session has to do about its recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
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
pub(crate) struct NotRecorded;

/// The recording of one session. Dropping it is a break: what was recorded is kept, its end is not
/// known.
#[derive(Debug)]
pub(crate) struct Recording {
    entries: Mutex<Vec<(Entry, Timestamp)>>,
    pace: watch::Sender<Pace>,
}

impl Recorder {
    /// Whether recordings have a place.
    pub(crate) fn is_configured(&self) -> bool {
        self.configured
    }

    /// Begins a recording.
    ///
    /// # Errors
    /// [`NotRecorded`].
    pub(crate) fn start(&self, meta: &Meta) -> Result<Recording, NotRecorded> {
        let _ = meta;
        Ok(Recording {
            entries: Mutex::default(),
            pace: watch::Sender::new(Pace::Go),
        })
    }
}

impl Recording {
    /// Takes an entry, and says what the session has to do from now on. Never waits; the caller
    /// gives no more than what was under way once it is told to hold.
    pub(crate) fn record(&self, entry: Entry, at: Timestamp) -> Pace {
        self.entries.lock().push((entry, at));
        *self.pace.borrow()
    }

    /// Tells whenever the session has to do something else.
    pub(crate) fn pace(&self) -> watch::Receiver<Pace> {
        self.pace.subscribe()
    }

    /// The session is over, and this is what lists show of it from now on. What waits is stored after
    /// this returns.
    pub(crate) fn finish(&self, session: &api::webtty::Session) {
        let _ = session;
    }
}
