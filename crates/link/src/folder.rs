//! A directory for exclusive use by one process, with atomically written files.
//!
//! The crate `acme` writes its files in the same way (`store.rs`). The two crates have no common
//! dependency, and one may not depend on the other (`xtask/src/tidy/graph.rs`).

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A directory (0700) with files (0600), used by one process at a time.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Locked until this value is dropped.
    lock: File,
}

impl Folder {
    /// Creates the directory if it is missing, and locks it.
    ///
    /// # Errors
    /// It cannot be created or written, or another process uses it ([`io::ErrorKind::WouldBlock`]).
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
        let lock = private().create(true).open(path.join(LOCK))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::Error(error) => error,
            fs::TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::WouldBlock,
                "another process uses this directory",
            ),
        })?;
        Ok(Self {
            path: path.to_owned(),
            lock,
        })
    }

    /// The whole file; `None` if it does not exist.
    ///
    /// # Errors
    /// It cannot be read, or is longer than `limit` bytes.
    pub(crate) fn read(&self, name: &str, limit: usize) -> io::Result<Option<Vec<u8>>> {
        read(&self.path.join(name), limit)
    }

    /// Writes a file, which is durable when this returns. After a crash either the old or the new
    /// version exists, complete.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let fresh = self.path.join(format!("{name}{FRESH}"));
        let written = private().create(true).truncate(true).open(&fresh);
        let renamed = written.and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&fresh, self.path.join(name))
        });
        if renamed.is_err() {
            // The partial file uses space that the next attempt may need.
            fs::remove_file(&fresh).ok();
        }
        renamed?;
        File::open(&self.path)?.sync_all()
    }

    /// Removes a file. After a crash it may exist again.
    ///
    /// # Errors
    /// Those of the file system; a missing file is not an error.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Removes a file durably: it stays removed after a crash.
    ///
    /// # Errors
    /// Those of the file system; a missing file is not an error.
    pub(crate) fn remove_durably(&self, name: &str) -> io::Result<()> {
        self.remove(name)?;
        File::open(&self.path)?.sync_all()
    }

    /// Names and sizes of the complete files. Incomplete ones are removed.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if name.ends_with(FRESH) {
                self.remove(&name)?;
            } else if name != LOCK {
                names.push((name, entry.metadata()?.len()));
            }
        }
        Ok(names)
    }
}

impl Drop for Folder {
    /// Closing the file is not enough: a child process has a copy of it, and with it the lock, from its
    /// creation until it executes its program.
    fn drop(&mut self) {
        self.lock.unlock().ok();
    }
}

const LOCK: &str = "lock";
/// A whole file, which may be in the folder of another process; `None` if it does not exist.
///
/// # Errors
/// It cannot be read, or is longer than `limit` bytes.
pub(crate) fn read(path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(Some(bytes))
}

/// Suffix of a file that is being written.
const FRESH: &str = ".new";

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_folder_is_private_and_used_by_one_process() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let folder = Folder::open(&path).unwrap();
        folder.write("file", b"text").unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join("file")), 0o600);
        let error = Folder::open(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(folder);
        assert!(Folder::open(&path).is_ok());
    }

    #[test]
    fn a_file_is_replaced_atomically_and_leftovers_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(parent.path()).unwrap();
        assert_eq!(folder.read("file", 10).unwrap(), None);
        folder.write("file", b"a long text").unwrap();
        folder.write("file", b"short").unwrap();
        fs::write(parent.path().join("file.new"), b"half").unwrap();
        assert_eq!(folder.list().unwrap(), [("file".to_owned(), 5)]);
        assert_eq!(folder.read("file", 5).unwrap().unwrap(), b"short");
        assert!(folder.read("file", 4).is_err(), "longer than it may be");
        folder.remove("file").unwrap();
        folder.remove("file").unwrap();
        assert_eq!(folder.list().unwrap(), []);
    }
}
