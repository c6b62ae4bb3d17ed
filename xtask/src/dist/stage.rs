//! The folder from which an archive is created: the same bytes, modes and times on every machine.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};

/// A file of an archive.
pub(super) struct Entry {
    /// Below the root of the archive.
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
    pub(super) executable: bool,
}

impl Entry {
    pub(super) fn new(path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            bytes: bytes.into(),
            executable: false,
        }
    }

    pub(super) fn executable(path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            executable: true,
            ..Self::new(path, bytes)
        }
    }
}

/// Writes the entries below `root`.
pub(super) fn write(root: &Path, entries: &[Entry]) -> Result<()> {
    fs::create_dir_all(root)?;
    for entry in entries {
        let path = root.join(&entry.path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, &entry.bytes)
            .with_context(|| format!("cannot write {}", path.display()))?;
        if entry.executable {
            fs::set_permissions(&path, Permissions::from_mode(EXECUTABLE))?;
        }
    }
    Ok(())
}

/// Sets the mode and the time of everything below `root`, and of `root` itself, so that they do not
/// depend on the umask and the time of the build.
pub(super) fn settle(root: &Path, seconds: u64) -> Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    settle_at(root, time)
}

fn settle_at(path: &Path, time: SystemTime) -> Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let is_folder = metadata.is_dir();
    if is_folder {
        for entry in fs::read_dir(path)? {
            settle_at(&entry?.path(), time)?;
        }
    }
    let is_executable = metadata.permissions().mode() & OWNER_EXECUTES != 0;
    let mode = if is_folder || is_executable {
        EXECUTABLE
    } else {
        READABLE
    };
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    File::open(path)?.set_modified(time)?;
    Ok(())
}

/// Every file below `root` except those in the folder `except`, relative to `root`, sorted.
pub(super) fn files(root: &Path, except: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let path = path.strip_prefix(root)?;
                if !path.starts_with(except) {
                    files.push(path.to_owned());
                }
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Folders, programs and scripts.
const EXECUTABLE: u32 = 0o755;
const READABLE: u32 = 0o644;
const OWNER_EXECUTES: u32 = 0o100;
