//! Lock of a folder against other processes.

use std::fs::{File, TryLockError};
use std::io;

use parking_lot::Mutex;

/// The process that holds it maintains the folder. The one that replaces it waits for the lock.
#[derive(Debug)]
pub(super) struct FolderLock {
    file: File,
    is_held: Mutex<bool>,
}

impl FolderLock {
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            is_held: Mutex::new(false),
        }
    }

    /// Takes the lock. Returns false if another process holds it.
    ///
    /// # Errors
    /// The file system refuses locks.
    pub(super) fn acquire(&self) -> io::Result<bool> {
        let mut is_held = self.is_held.lock();
        if !*is_held {
            match self.file.try_lock() {
                Ok(()) => *is_held = true,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(*is_held)
    }

    /// Releases the lock, if this process holds it.
    ///
    /// # Errors
    /// The file system refuses.
    pub(super) fn release(&self) -> io::Result<()> {
        let was_held = std::mem::replace(&mut *self.is_held.lock(), false);
        if was_held {
            self.file.unlock()?;
        }
        Ok(())
    }
}
