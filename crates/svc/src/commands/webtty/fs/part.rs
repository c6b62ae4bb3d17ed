//! A partial file beside its destination, until the download is complete.

use std::{
    io,
    path::{Path, PathBuf},
};

use tokio::fs::{self, File, OpenOptions};

use crate::failure::{Code, Failure};

/// A temporary file beside the destination. Dropping it removes the file unless it was kept.
pub(super) struct Part {
    pub(super) file: File,
    path: PathBuf,
    destination: PathBuf,
    is_kept: bool,
}

impl Part {
    /// Creates the file. An existing file with the temporary name belongs to another process.
    pub(super) async fn begin(place: &Path) -> Result<Self, Failure> {
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let path = place.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .await
            .map_err(|error| write_failure(&path, error))?;
        Ok(Self {
            file,
            path,
            destination: place.to_owned(),
            is_kept: false,
        })
    }

    /// Moves the file to its destination. Without `over`, an existing destination is an error.
    pub(super) async fn persist(mut self, over: bool) -> Result<(), Failure> {
        let Self {
            path,
            destination: place,
            ..
        } = &self;
        self.file
            .sync_all()
            .await
            .map_err(|error| write_failure(path, error))?;
        if !over {
            // A hard link never replaces an existing file. The drop removes the temporary name.
            match fs::hard_link(path, place).await {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(already_exists(place));
                }
                // The file system has no hard links. A file that appears after this check is
                // overwritten.
                Err(_) if path_exists(place) => return Err(already_exists(place)),
                Err(_) => {}
            }
        }
        fs::rename(path, place)
            .await
            .map_err(|error| write_failure(place, error))?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_kept {
            // A file that cannot be removed has a recognisable name.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// True if the path exists, even as a dangling link.
pub(super) fn path_exists(place: &Path) -> bool {
    place.symlink_metadata().is_ok()
}

/// The failure for a local file that exists, without `--force`.
pub(super) fn already_exists(place: &Path) -> Failure {
    let message = format!("{} exists already", place.display());
    Failure::new(Code::Conflict, message)
        .named("file_exists")
        .hint("use --force to overwrite it")
}

fn write_failure(path: &Path, error: io::Error) -> Failure {
    Failure::from_error(&format!("cannot write {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use std::fs::{read, read_dir, write};

    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn whole(place: &Path) -> Part {
        let mut part = Part::begin(place).await.unwrap();
        part.file.write_all(b"new").await.unwrap();
        part
    }

    #[tokio::test]
    async fn a_new_destination_file_is_kept_without_force() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("a");
        whole(&place).await.persist(false).await.unwrap();
        assert_eq!(read(&place).unwrap(), b"new");

        let part = whole(&home.path().join("b")).await;
        write(home.path().join("b"), "old").unwrap();
        let failure = part.persist(false).await.unwrap_err();
        assert_eq!(
            (failure.code(), failure.name()),
            (Code::Conflict, "file_exists")
        );
        assert_eq!(read(home.path().join("b")).unwrap(), b"old");
        whole(&home.path().join("b"))
            .await
            .persist(true)
            .await
            .unwrap();
        assert_eq!(read(home.path().join("b")).unwrap(), b"new");
        // No temporary file is left.
        assert_eq!(read_dir(home.path()).unwrap().count(), 2);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn nothing_is_written_through_a_link() {
        let home = tempfile::tempdir().unwrap();
        let other = home.path().join("other");
        write(&other, "theirs").unwrap();
        let place = home.path().join("a");
        let name = format!("a.{}.part", std::process::id());
        std::os::unix::fs::symlink(&other, home.path().join(name)).unwrap();
        assert!(Part::begin(&place).await.is_err());
        assert_eq!(read(&other).unwrap(), b"theirs");
    }
}
