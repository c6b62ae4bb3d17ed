//! Files that only their owner can access.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::KeyError;
use crate::private;

/// Reads a file, which other users must not be able to access.
pub(super) fn read(path: &Path) -> Result<String, KeyError> {
    let failed = |source| KeyError::File {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if private::is_shared(&metadata) {
        return Err(KeyError::Shared {
            path: path.to_owned(),
        });
    }
    let mut text = String::new();
    file.take(MAX_FILE)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 == MAX_FILE {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(text)
}

/// The non-empty lines without comments, with their numbers from 1.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.lines().map(str::trim));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// Writes a file that must not exist yet.
pub(super) fn create(path: &Path, bytes: &[u8]) -> Result<(), KeyError> {
    let _lock = lock(path)?;
    if path.symlink_metadata().is_ok() {
        return Err(KeyError::Exists {
            path: path.to_owned(),
        });
    }
    replace(path, bytes)
}

/// Replaces a file atomically.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), KeyError> {
    let unfinished = hidden_sibling(path, &format!("{}.new", std::process::id()));
    private::replace(path, &unfinished, bytes).map_err(|source| KeyError::File {
        path: path.to_owned(),
        source,
    })
}

/// Locks a file against changes by other programs until the result is dropped. Creates the folder.
pub(super) fn lock(path: &Path) -> Result<File, KeyError> {
    let locked = hidden_sibling(path, "lock");
    let lock = || {
        let folder = path.parent().unwrap_or(Path::new("."));
        private::create_dir_all(folder)?;
        let file = private::file().create(true).truncate(false).open(&locked)?;
        file.lock()?;
        Ok(file)
    };
    lock().map_err(|source| KeyError::File {
        path: locked.clone(),
        source,
    })
}

/// A hidden file in the same folder: listings of the folder omit it.
fn hidden_sibling(path: &Path, what: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{what}"))
}

/// Maximum size: some ten thousand keys.
const MAX_FILE: u64 = 1024 * 1024;
