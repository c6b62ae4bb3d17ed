//! The state in memory and its file.
//!
//! A restart without the platform serves from the file, so a file that allows what was revoked
//! since is worse than none. A save that fails is retried for as long as the process runs; a file
//! that lacks a revocation is deleted.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::link::{Cursor, Item};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::folder::Folder;
use crate::pace::{Pace, random};
use crate::reader::MAX_SNAPSHOT_BYTES;
use crate::state::{MAX_FILE_BYTES, State};
use crate::status::Status;

/// The state that is in force, and the file that a restart begins with.
#[derive(Debug)]
pub(crate) struct Storage {
    folder: Folder,
    /// Address of the platform, which is written into the file.
    address: String,
    status: Arc<Status>,
    memory: Mutex<Memory>,
    /// The state changed.
    changed: Notify,
    /// The state changed so that something is allowed no longer.
    restricted: Notify,
}

#[derive(Debug, Default)]
struct Memory {
    state: Option<State>,
    /// The file may allow what this state does not.
    restricted: bool,
}

/// Name of the file.
const STATE: &str = "state";
/// Writing takes one part of time in so many.
const WRITING_SHARE: u32 = 20;
/// The least time between two saves if the second one holds a revocation. Saving a large state
/// takes longer than that; then it takes half of the time.
const REVOCATION_PAUSE: Duration = Duration::from_millis(100);

/// What became of a save.
#[derive(Debug)]
enum Save {
    Written,
    /// The file is as it was: all that it allows is allowed still.
    Failed(io::Error),
    /// The file lacked a revocation and was deleted.
    Deleted(io::Error),
    /// The file lacks a revocation and could not be deleted.
    Stale(io::Error, io::Error),
}

impl Storage {
    pub(crate) fn new(folder: Folder, address: String, status: Arc<Status>) -> Self {
        Self {
            folder,
            address,
            status,
            memory: Mutex::default(),
            changed: Notify::new(),
            restricted: Notify::new(),
        }
    }

    /// The state of the file; `None` where there is no file. Blocks.
    ///
    /// # Errors
    /// A sentence for the operator: the file is not used.
    pub(crate) fn load(&self) -> Result<Option<State>, String> {
        let file = self.folder.read(STATE, MAX_FILE_BYTES);
        let Some(file) = file.map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let mut state =
            State::from_file(&file, &self.address).map_err(|error| error.to_string())?;
        state.forget_ended(unix_seconds());
        Ok(Some(state))
    }

    /// Takes the state of the file for the one in force.
    pub(crate) fn restored(&self, state: State) {
        self.memory.lock().state = Some(state);
    }

    /// Takes the state of a snapshot for the one in force.
    pub(crate) fn replace(&self, state: State) {
        let restricts = {
            let mut memory = self.memory.lock();
            // Without a state in force the file, if there is one, could not be used.
            let before = memory.state.replace(state);
            let now = memory.state.as_ref();
            let restricts = match (&before, now) {
                (Some(before), Some(now)) => now.restricts(before),
                _ => true,
            };
            memory.restricted |= restricts;
            restricts
        };
        self.notify(restricts);
    }

    /// Puts a change on top of the state in force.
    pub(crate) fn fold(&self, items: &[Item], cursor: &Cursor) {
        let restricts = {
            let mut memory = self.memory.lock();
            let Some(state) = &mut memory.state else {
                return;
            };
            let restricts = state.fold(items, cursor.clone());
            memory.restricted |= restricts;
            restricts
        };
        self.notify(restricts);
    }

    fn notify(&self, restricts: bool) {
        self.changed.notify_one();
        if restricts {
            self.restricted.notify_one();
        }
    }

    /// How far the state in force goes.
    pub(crate) fn cursor(&self) -> Option<Cursor> {
        let memory = self.memory.lock();
        memory.state.as_ref()?.cursor().cloned()
    }

    /// Forgets how far it goes: the platform is asked for everything.
    pub(crate) fn forget_cursor(&self) {
        if let Some(state) = &mut self.memory.lock().state {
            state.forget_cursor();
        }
    }

    /// Saves the state whenever it changed, until `stop`, and then once more if it has to.
    pub(crate) async fn keep_saved(self: Arc<Self>, pace: &Pace, stop: &CancellationToken) {
        let mut backoff = pace.retry.clone();
        let mut retry: Option<Duration> = None;
        loop {
            let stopped = tokio::select! {
                // A change is saved first: the end waits for it.
                biased;
                () = self.changed.notified() => false,
                () = stop.cancelled() => true,
                () = tokio::time::sleep(retry.unwrap_or_default()), if retry.is_some() => false,
            };
            if stopped && retry.is_none() {
                return;
            }
            let begun = Instant::now();
            let storage = Arc::clone(&self);
            let saving = tokio::task::spawn_blocking(move || storage.save());
            let save = match saving.await {
                Ok(save) => save,
                Err(error) => {
                    // It panicked, and may have forgotten a revocation.
                    self.memory.lock().restricted = true;
                    Save::Failed(io::Error::other(error))
                }
            };
            retry = if self.report(&save) {
                backoff.reset();
                None
            } else {
                Some(backoff.next_wait(random()))
            };
            if stopped {
                return;
            }
            self.pause(pace, begun.elapsed(), stop).await;
        }
    }

    /// Waits before the next save: a large state that changes all the time must not keep the disk
    /// busy. A revocation waits for less.
    async fn pause(&self, pace: &Pace, writing: Duration, stop: &CancellationToken) {
        let urgent = async {
            self.restricted.notified().await;
            tokio::time::sleep(writing.max(REVOCATION_PAUSE)).await;
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = urgent => {}
            () = tokio::time::sleep(pace.save.max(writing * WRITING_SHARE)) => {}
        }
    }

    /// Writes the state of this moment. Blocks.
    fn save(&self) -> Save {
        let (state, restricted) = {
            let mut memory = self.memory.lock();
            if let Some(state) = &mut memory.state {
                state.forget_ended(unix_seconds());
            }
            // A copy of references: nobody waits while it is written.
            let Some(state) = memory.state.clone() else {
                return Save::Written;
            };
            (state, std::mem::take(&mut memory.restricted))
        };
        let written = if state.bytes() > MAX_SNAPSHOT_BYTES {
            Err(io::ErrorKind::FileTooLarge.into())
        } else {
            self.folder.write(STATE, &state.to_file(&self.address))
        };
        let Err(error) = written else {
            return Save::Written;
        };
        if !restricted {
            return Save::Failed(error);
        }
        match self.folder.remove_durably(STATE) {
            // What is deleted allows nothing: the next change begins anew.
            Ok(()) => Save::Deleted(error),
            Err(undeleted) => {
                self.memory.lock().restricted = true;
                Save::Stale(error, undeleted)
            }
        }
    }

    /// Tells the operator once that saving fails, and once that it succeeds again. True where the
    /// state is saved.
    fn report(&self, save: &Save) -> bool {
        let saved = matches!(save, Save::Written);
        let before = self.status.set_saved(saved);
        match save {
            Save::Written if !before => info!("the state is saved again"),
            Save::Failed(error) if before => {
                warn!(%error, "the state cannot be saved; this is tried again");
            }
            Save::Deleted(error) => error!(
                %error,
                "a revocation cannot be saved, so the stored state was deleted; until saving \
                 succeeds, a restart serves nothing before the platform answers"
            ),
            Save::Stale(error, undeleted) if before => error!(
                %error, %undeleted,
                "a revocation cannot be saved, and the stored state cannot be deleted; a restart \
                 without the platform would serve what was revoked"
            ),
            Save::Written | Save::Failed(_) | Save::Stale(..) => {}
        }
        saved
    }
}

fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}
