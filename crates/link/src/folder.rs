//! A directory that is this process's alone, and files that are whole or not there.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A directory (0700) with files (0600) that one process at a time uses.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Locked for as long as this lives.
    _lock: File,
}

impl Folder {
    /// Makes the directory where it is missing, and takes it.
    ///
    /// # Errors
    /// It cannot be made or written, or another process has it ([`io::ErrorKind::WouldBlock`]).
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
            _lock: lock,
        })
    }

    /// The whole file; `None` where there is none.
    ///
    /// # Errors
    /// It cannot be read, or is longer than `limit` bytes.
    pub(crate) fn read(&self, name: &str, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.path.join(name)) {
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

    /// Puts a file there, durable when this returns. Whatever happens on the way, the old one or
    /// the new one is there, and whole.
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
            // What is left of it takes room that the next one may need.
            fs::remove_file(&fresh).ok();
        }
        renamed?;
        File::open(&self.path)?.sync_all()
    }

    /// Removes a file. After a crash it may be there again.
    ///
    /// # Errors
    /// Those of the file system; a file that is not there is none.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Removes a file for good: when this returns it is gone, also after a crash.
    ///
    /// # Errors
    /// Those of the file system; a file that is not there is none.
    pub(crate) fn remove_durably(&self, name: &str) -> io::Result<()> {
        self.remove(name)?;
        File::open(&self.path)?.sync_all()
    }

    /// Names of the files that are whole, with their sizes. What was not finished is removed.
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

const LOCK: &str = "lock";
/// Ends the name of a file that is being written.
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
    fn nobody_else_reads_it_and_no_other_process_uses_it() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let folder = Folder::open(&path).unwrap();
        folder.write("file", b"text").unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join("file")), 0o600);
        let taken = Folder::open(&path).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::WouldBlock);
        drop(folder);
        assert!(Folder::open(&path).is_ok());
    }

    #[test]
    fn a_file_is_replaced_whole_and_leftovers_are_no_files() {
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
