//! Polling of the files in use.
//!
//! Polling replaces a file watch, which can be lost. Each poll reads the files completely and
//! compares them. Any kind of replacement is therefore noticed: overwriting, renaming, or a changed
//! symbolic link anywhere on the path.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use daemon::{config::MAX_FILE_BYTES, files::read_bounded_from};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use crate::args::link_password;

/// The contents of files, or the reasons why they cannot be read.
pub(super) type Contents = BTreeMap<PathBuf, Result<Content, String>>;

/// The content of a file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    /// True if all users of the machine can read the file. Passwords in such a file are refused. If
    /// only this changes, the file must be read again.
    is_public: bool,
}

/// The list of polled files, shared by its clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Files(Arc<Mutex<Vec<PathBuf>>>);

impl Files {
    /// Sets the files to poll.
    pub(super) fn set(&self, paths: Vec<PathBuf>) {
        *self.0.lock() = paths;
    }

    /// Reads the files now.
    pub(super) async fn read(&self) -> Contents {
        let paths = self.0.lock().clone();
        // Reads in a blocking thread, because the disk may hang.
        let read =
            spawn_blocking(move || paths.into_iter().map(|path| (read(&path), path)).collect());
        let read: Vec<(io::Result<Content>, PathBuf)> = read.await.unwrap_or_default();
        read.into_iter()
            .map(|(read, path)| (path, read.map_err(|error| error.to_string())))
            .collect()
    }

    /// Polls the files, and reports contents that were equal in two successive polls. An editor may
    /// be in the middle of a write.
    pub(super) async fn follow(self, changes: watch::Sender<Contents>) {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Contents::new();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = changes.closed() => return,
            }
            let now = self.read().await;
            if now == last {
                changes.send_if_modified(|previous| {
                    let new = *previous != now;
                    if new {
                        previous.clone_from(&now);
                    }
                    new
                });
            }
            last = now;
        }
    }
}

fn read(path: &Path) -> io::Result<Content> {
    let file = File::open(path)?;
    let is_public = link_password::is_public(&file.metadata()?);
    let bytes = read_bounded_from(file, MAX_FILE_BYTES)?;
    Ok(Content { bytes, is_public })
}

/// A second between saving a file and its effect is not noticeable. Reading a few KiB twice a
/// second has no measurable cost.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
