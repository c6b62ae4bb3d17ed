//! Files that only their owner can access.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::KeyError;

/// Reads a file, which other users must not be able to access.
pub(super) fn read(path: &Path) -> Result<String, KeyError> {
    let failed = |source| KeyError::File {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if is_open(&metadata) {
        return Err(KeyError::Open {
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
    let unfinished = beside(path, &format!("{}.new", std::process::id()));
    let write = || {
        // A previous process with the same id may have left this file. A new file has the right
        // mode from its first byte.
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private().create_new(true).open(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().map_err(|source| KeyError::File {
        path: path.to_owned(),
        source,
    })
}

/// Locks a file against changes by other programs until the result is dropped. Creates the folder.
pub(super) fn lock(path: &Path) -> Result<File, KeyError> {
    let locked = beside(path, "lock");
    let lock = || {
        let folder = path.parent().unwrap_or(Path::new("."));
        private_folder().create(folder)?;
        let file = private().create(true).truncate(false).open(&locked)?;
        file.lock()?;
        Ok(file)
    };
    lock().map_err(|source| KeyError::File {
        path: locked.clone(),
        source,
    })
}

/// Options for files that only their owner can access from the first byte on. On systems without
/// file modes, the home directory is protected.
fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn private_folder() -> fs::DirBuilder {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// True if users other than the owner can read or write the file.
#[cfg(unix)]
fn is_open(metadata: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::mode(metadata) & GROUP_AND_OTHERS != 0
}

#[cfg(not(unix))]
fn is_open(_metadata: &fs::Metadata) -> bool {
    false
}

/// A hidden file in the same folder: listings of the folder omit it.
fn beside(path: &Path, what: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{what}"))
}

/// The permissions of group and others.
#[cfg(unix)]
const GROUP_AND_OTHERS: u32 = 0o077;

/// Maximum size: some ten thousand keys.
const MAX_FILE: u64 = 1024 * 1024;
