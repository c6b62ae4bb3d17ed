//! The state in memory and its file.
//!
//! A restart without the platform serves from the file, so a file that still allows something
//! revoked is worse than none. A failed save is retried for the lifetime of the process; a file
//! that lacks a revocation is deleted.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::link::{Cursor, Item};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::folder::{Folder, read};
use crate::reader::MAX_SNAPSHOT_BYTES;
use crate::state::{MAX_FILE_BYTES, State};
use crate::status::Status;
use crate::times::{LinkTimes, random};

/// The effective state, and the file with which a restart begins.
#[derive(Debug)]
pub(crate) struct Storage {
    folder: Folder,
    /// Address of the platform, which is written into the file.
    address: String,
    status: Arc<Status>,
    memory: Mutex<Memory>,
    /// The state has changed.
    changed: Notify,
    /// The state has changed and allows less than before.
    revocation_added: Notify,
}

#[derive(Debug, Default)]
struct Memory {
    state: Option<State>,
    /// The file may allow more than this state.
    file_lacks_revocation: bool,
}

/// Name of the file.
pub(crate) const STATE: &str = "state";
/// The pause after a save is at least this many times as long as the save.
const WRITING_SHARE: u32 = 20;
/// Minimum time between two saves if the second one contains a revocation. Saving a large state
/// takes longer than that; then it takes half of the time.
const REVOCATION_PAUSE: Duration = Duration::from_millis(100);

/// Result of a save.
#[derive(Debug)]
enum SaveResult {
    Written,
    /// The file is unchanged, and everything that it allows is still allowed.
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
            revocation_added: Notify::new(),
        }
    }

    /// The state of the file; `None` if there is no file. Blocks.
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
        state.remove_expired(unix_seconds());
        Ok(Some(state))
    }

    /// Copies the file of another process, which still uses it. If that process has deleted it, an
    /// older file of this folder is deleted as well, because it lacks later revocations. Blocks.
    ///
    /// # Errors
    /// Those of the file system; a missing file is not an error.
    pub(crate) fn adopt(&self, folder: &Path) -> io::Result<()> {
        match read(&folder.join(STATE), MAX_FILE_BYTES)? {
            Some(bytes) => self.folder.write(STATE, &bytes),
            None => self.delete(),
        }
    }

    /// Deletes the file. Blocks.
    ///
    /// # Errors
    /// Those of the file system; a missing file is not an error.
    pub(crate) fn delete(&self) -> io::Result<()> {
        self.folder.remove_durably(STATE)
    }

    /// Makes the state of the file the effective one.
    pub(crate) fn set_state(&self, state: State) {
        self.memory.lock().state = Some(state);
    }

    /// Makes the state of a snapshot the effective one.
    pub(crate) fn replace(&self, state: State) {
        let restricts = {
            let mut memory = self.memory.lock();
            // Without a previous state, the file may allow something that was revoked since.
            let before = memory.state.replace(state);
            let now = memory.state.as_ref();
            let restricts = match (&before, now) {
                (Some(before), Some(now)) => now.restricts(before),
                _ => true,
            };
            memory.file_lacks_revocation |= restricts;
            restricts
        };
        self.notify(restricts);
    }

    /// Applies a change to the effective state.
    pub(crate) fn apply(&self, items: &[Item], cursor: &Cursor) {
        let restricts = {
            let mut memory = self.memory.lock();
            let Some(state) = &mut memory.state else {
                return;
            };
            let restricts = state.apply(items, cursor.clone());
            memory.file_lacks_revocation |= restricts;
            restricts
        };
        self.notify(restricts);
    }

    fn notify(&self, restricts: bool) {
        self.changed.notify_one();
        if restricts {
            self.revocation_added.notify_one();
        }
    }

    /// Cursor of the effective state.
    pub(crate) fn cursor(&self) -> Option<Cursor> {
        let memory = self.memory.lock();
        memory.state.as_ref()?.cursor().cloned()
    }

    /// Removes the cursor, so that the platform sends everything again.
    pub(crate) fn forget_cursor(&self) {
        if let Some(state) = &mut self.memory.lock().state {
            state.forget_cursor();
        }
    }

    /// Saves the state after each change until `stop`, and then once more if necessary.
    pub(crate) async fn keep_saved(self: Arc<Self>, pace: &LinkTimes, stop: &CancellationToken) {
        let mut backoff = pace.retry.clone();
        let mut retry: Option<Duration> = None;
        loop {
            let stopped = tokio::select! {
                // A change is saved first, and delays the stop.
                biased;
                () = self.changed.notified() => false,
                () = stop.cancelled() => true,
                () = tokio::time::sleep(retry.unwrap_or_default()), if retry.is_some() => false,
            };
            if stopped && retry.is_none() {
                return;
            }
            let started_at = Instant::now();
            let storage = Arc::clone(&self);
            let saving = tokio::task::spawn_blocking(move || storage.save());
            let save = match saving.await {
                Ok(save) => save,
                Err(error) => {
                    // The task panicked, and may have lost the flag of a revocation.
                    self.memory.lock().file_lacks_revocation = true;
                    SaveResult::Failed(io::Error::other(error))
                }
            };
            retry = if self.log_result(&save) {
                backoff.reset();
                None
            } else {
                Some(backoff.next_wait(random()))
            };
            if stopped {
                return;
            }
            self.pause(pace, started_at.elapsed(), stop).await;
        }
    }

    /// Waits before the next save, so that a large state with frequent changes does not keep the
    /// disk busy. A revocation shortens the wait.
    async fn pause(&self, pace: &LinkTimes, writing: Duration, stop: &CancellationToken) {
        let urgent = async {
            self.revocation_added.notified().await;
            tokio::time::sleep(writing.max(REVOCATION_PAUSE)).await;
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = urgent => {}
            () = tokio::time::sleep(pace.save.max(writing * WRITING_SHARE)) => {}
        }
    }

    /// Writes the current state. Blocks.
    fn save(&self) -> SaveResult {
        let (state, restricted) = {
            let mut memory = self.memory.lock();
            if let Some(state) = &mut memory.state {
                state.remove_expired(unix_seconds());
            }
            // Clones only references, so the lock is not held during the write.
            let Some(state) = memory.state.clone() else {
                return SaveResult::Written;
            };
            (state, std::mem::take(&mut memory.file_lacks_revocation))
        };
        let written = if state.bytes() > MAX_SNAPSHOT_BYTES {
            Err(io::ErrorKind::FileTooLarge.into())
        } else {
            self.folder.write(STATE, &state.to_file(&self.address))
        };
        let Err(error) = written else {
            return SaveResult::Written;
        };
        if !restricted {
            return SaveResult::Failed(error);
        }
        match self.folder.remove_durably(STATE) {
            // A deleted file allows nothing, so the flag is cleared.
            Ok(()) => SaveResult::Deleted(error),
            Err(undeleted) => {
                self.memory.lock().file_lacks_revocation = true;
                SaveResult::Stale(error, undeleted)
            }
        }
    }

    /// Logs once that saving fails, and once that it succeeds again. Returns true if the state is
    /// saved.
    fn log_result(&self, save: &SaveResult) -> bool {
        let saved = matches!(save, SaveResult::Written);
        let before = self.status.set_saved(saved);
        match save {
            SaveResult::Written if !before => info!("the state can be saved again"),
            SaveResult::Failed(error) if before => {
                warn!(%error, "the state cannot be saved; this is retried");
            }
            SaveResult::Deleted(error) => error!(
                %error,
                "a revocation cannot be saved, so the stored state was deleted; until saving \
                 succeeds, a restarted process serves nothing before the platform responds"
            ),
            SaveResult::Stale(error, undeleted) if before => error!(
                %error, %undeleted,
                "a revocation cannot be saved, and the stored state cannot be deleted; a process \
                 that restarts without the platform would accept what was revoked"
            ),
            SaveResult::Written | SaveResult::Failed(_) | SaveResult::Stale(..) => {}
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
