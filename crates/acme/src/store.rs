//! The state directory: atomically written private files, and the lock of an order.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A directory (0700 if this creates it) with files (0600). Several processes may use it; one at a time orders.
#[derive(Clone, Debug)]
pub(crate) struct StateFolder {
    path: PathBuf,
}

/// The right to order, until it is dropped. The system releases it when the process ends.
#[derive(Debug)]
pub(crate) struct OrderLock {
    _file: File,
}

impl StateFolder {
    /// Creates the directory if it is missing. The permissions of an existing one stay: it may be
    /// one that other programs use.
    ///
    /// # Errors
    /// It cannot be created, or other users may write to it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        if fs::metadata(path)?.permissions().mode() & 0o022 != 0 {
            let message = "other users may write to it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// A directory that is only read.
    pub(crate) fn existing(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The right to order; `None` while another process has it.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn try_lock(&self) -> io::Result<Option<OrderLock>> {
        let file = private().create(true).open(self.path.join("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(OrderLock { _file: file })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// The whole file; `None` if it does not exist.
    ///
    /// # Errors
    /// It cannot be read, or is longer than [`MAX_BYTES`].
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Some(bytes))
    }

    /// Writes a file, which is durable when this returns. After a crash either the old or the new
    /// version exists, complete. Only the holder of the lock writes.
    ///
    /// # Errors
    /// Those of the file system; the old version still exists.
    pub(crate) fn write(&self, _: &OrderLock, name: &str, bytes: &[u8]) -> io::Result<()> {
        let fresh = self.path.join(format!("{name}.new"));
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

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the file system; a missing file is not an error.
    pub(crate) fn remove(&self, _: &OrderLock, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// A chain with its key has less than 20 KiB.
const MAX_BYTES: u64 = 1024 * 1024;

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
    fn files_are_private_and_replaced_as_a_whole() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let folder = StateFolder::open(&path).unwrap();
        let lock = folder.try_lock().unwrap().unwrap();
        assert_eq!(folder.read("file").unwrap(), None);
        folder.write(&lock, "file", b"a long text").unwrap();
        folder.write(&lock, "file", b"short").unwrap();
        assert_eq!(folder.read("file").unwrap().unwrap(), b"short");
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join("file")), 0o600);
        folder.remove(&lock, "file").unwrap();
        folder.remove(&lock, "file").unwrap();
        assert_eq!(folder.read("file").unwrap(), None);
    }

    #[test]
    fn a_directory_of_others_is_neither_changed_nor_trusted() {
        let parent = tempfile::tempdir().unwrap();
        for (permissions, is_usable) in
            [(0o755, true), (0o750, true), (0o770, false), (0o777, false)]
        {
            fs::set_permissions(parent.path(), fs::Permissions::from_mode(permissions)).unwrap();
            let opened = StateFolder::open(parent.path());
            assert_eq!(opened.is_ok(), is_usable, "{permissions:o}");
            assert_eq!(mode(parent.path()), permissions);
        }
    }

    #[test]
    fn a_failed_write_keeps_the_old_version() {
        let parent = tempfile::tempdir().unwrap();
        let folder = StateFolder::open(parent.path()).unwrap();
        let lock = folder.try_lock().unwrap().unwrap();
        folder.write(&lock, "file", b"old").unwrap();
        // A directory in place of the temporary file refuses every write, also of root.
        fs::create_dir(parent.path().join("file.new")).unwrap();
        assert!(folder.write(&lock, "file", b"new").is_err());
        assert_eq!(folder.read("file").unwrap().unwrap(), b"old");
    }

    #[test]
    fn one_process_at_a_time_orders() {
        let parent = tempfile::tempdir().unwrap();
        let folder = StateFolder::open(parent.path()).unwrap();
        let lock = folder.try_lock().unwrap().unwrap();
        assert!(folder.try_lock().unwrap().is_none());
        drop(lock);
        assert!(folder.try_lock().unwrap().is_some());
    }
}
