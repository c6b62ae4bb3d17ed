//! The disks that an engine writes to, and the check that none of them is full.

use std::path::{Path, PathBuf};

use daemon::access_log::AccessLog;
use nix::sys::statvfs::statvfs;

use crate::config::{Auth, EngineConfig, RecordingLocation};

/// The paths that an engine writes to.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    folders: Vec<PathBuf>,
    access_log: Option<AccessLog>,
}

impl Storage {
    pub(crate) fn of(config: &EngineConfig, access_log: Option<&AccessLog>) -> Self {
        let mut folders = Vec::new();
        if let Auth::Platform(platform) = &config.auth {
            folders.push(platform.data_dir.clone());
        }
        if let Some(RecordingLocation::Folder(folder)) = &config.recordings.location {
            folders.push(folder.clone());
        }
        Self {
            folders,
            access_log: access_log.cloned(),
        }
    }

    /// Returns true if the access log cannot be written or a disk has less than [`RESERVE`] left.
    /// Blocks until the disks respond.
    pub(crate) fn is_full(&self) -> bool {
        let is_failing = self.access_log.as_ref().is_some_and(AccessLog::is_failing);
        is_failing || self.folders.iter().any(|folder| is_full(folder))
    }
}

/// A folder that cannot be read counts as not full; errors appear when something is written to it.
fn is_full(folder: &Path) -> bool {
    let Ok(disk) = statvfs(folder) else {
        return false;
    };
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    free < RESERVE
}

/// Bytes that must be free. The state of the platform is rewritten beside the old file, and takes a
/// few megabytes for ten thousand projects.
const RESERVE: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwritable_log_counts_as_a_full_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut storage = Storage {
            folders: vec![folder.path().to_owned(), folder.path().join("missing")],
            access_log: None,
        };
        assert!(!storage.is_full());
        let (log, thread) = AccessLog::open(Path::new("/dev/full")).unwrap();
        log.write("a line");
        thread.finish();
        storage.access_log = Some(log);
        assert!(storage.is_full());
    }
}
