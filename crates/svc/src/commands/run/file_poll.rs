//! The files that are looked at while they are in use.
//!
//! There is no watch that could be lost: each look reads the files whole, which are small, and
//! compares. So it does not matter how they were replaced: written over, renamed into place, or
//! by a link somewhere on the path that leads elsewhere now.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use daemon::{config::MAX_FILE_BYTES, files::read_bounded};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

/// What files hold, or why they cannot be read.
pub(super) type Contents = BTreeMap<PathBuf, Result<Vec<u8>, String>>;

/// The files that are looked at; its clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Files(Arc<Mutex<Vec<PathBuf>>>);

impl Files {
    /// Looks at these from now on.
    pub(super) fn set(&self, paths: Vec<PathBuf>) {
        *self.0.lock() = paths;
    }

    /// Reads them now.
    pub(super) async fn read(&self) -> Contents {
        let paths = self.0.lock().clone();
        // A disk that hangs holds up nothing else.
        let read =
            spawn_blocking(move || paths.into_iter().map(|path| (read(&path), path)).collect());
        let read: Vec<(Result<Vec<u8>, String>, PathBuf)> = read.await.unwrap_or_default();
        read.into_iter().map(|(read, path)| (path, read)).collect()
    }

    /// Looks again and again, and hands on what two looks in a row have seen: an editor may be half
    /// way through.
    pub(super) async fn follow(self, seen: watch::Sender<Contents>) {
        let mut looks = interval(EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Contents::new();
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                () = seen.closed() => return,
            }
            let now = self.read().await;
            if now == last {
                seen.send_if_modified(|told| {
                    let new = *told != now;
                    if new {
                        told.clone_from(&now);
                    }
                    new
                });
            }
            last = now;
        }
    }
}

fn read(path: &std::path::Path) -> Result<Vec<u8>, String> {
    read_bounded(path, MAX_FILE_BYTES).map_err(|error| error.to_string())
}

/// Nobody notices a second between saving a file and its effect; reading a few KiB twice a second
/// costs nothing that could be measured.
const EVERY: Duration = Duration::from_millis(500);
