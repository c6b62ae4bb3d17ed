//! A file that comes in pieces: beside its place until it is whole.

use std::{
    io,
    path::{Path, PathBuf},
};

use tokio::fs::{self, File, OpenOptions};

use crate::failure::{Code, Failure};

/// A file that is being written beside its place, and goes when it is not kept.
pub(super) struct Part {
    pub(super) file: File,
    path: PathBuf,
    place: PathBuf,
    stays: bool,
}

impl Part {
    /// Begins one. What is there already under its name is somebody else's.
    pub(super) async fn begin(place: &Path) -> Result<Self, Failure> {
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let path = place.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .await
            .map_err(|error| cannot(&path, error))?;
        Ok(Self {
            file,
            path,
            place: place.to_owned(),
            stays: false,
        })
    }

    /// Puts it into its place: over what is there, or nowhere.
    pub(super) async fn keep(mut self, over: bool) -> Result<(), Failure> {
        let Self { path, place, .. } = &self;
        self.file
            .sync_all()
            .await
            .map_err(|error| cannot(path, error))?;
        if !over {
            // A second name is never put over a first one; the drop takes the other away.
            match fs::hard_link(path, place).await {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(taken(place));
                }
                // A file system without second names: what comes in between is not seen.
                Err(_) if is_taken(place) => return Err(taken(place)),
                Err(_) => {}
            }
        }
        fs::rename(path, place)
            .await
            .map_err(|error| cannot(place, error))?;
        self.stays = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.stays {
            // What cannot be removed has a name that says what it is.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Whether something is there, if only a link to nothing.
pub(super) fn is_taken(place: &Path) -> bool {
    place.symlink_metadata().is_ok()
}

/// What is there is not written over without being told to.
pub(super) fn taken(place: &Path) -> Failure {
    let message = format!("{} exists already", place.display());
    Failure::new(Code::Conflict, message)
        .named("file_exists")
        .hint("--force writes over it")
}

fn cannot(path: &Path, error: io::Error) -> Failure {
    Failure::of(&format!("cannot write {}", path.display()), error)
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
    async fn what_appeared_meanwhile_is_kept_unless_it_is_to_be_replaced() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("a");
        whole(&place).await.keep(false).await.unwrap();
        assert_eq!(read(&place).unwrap(), b"new");

        let part = whole(&home.path().join("b")).await;
        write(home.path().join("b"), "old").unwrap();
        let failure = part.keep(false).await.unwrap_err();
        assert_eq!(
            (failure.code(), failure.name()),
            (Code::Conflict, "file_exists")
        );
        assert_eq!(read(home.path().join("b")).unwrap(), b"old");
        whole(&home.path().join("b"))
            .await
            .keep(true)
            .await
            .unwrap();
        assert_eq!(read(home.path().join("b")).unwrap(), b"new");
        // Nothing else is left.
        assert_eq!(read_dir(home.path()).unwrap().count(), 2);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn nothing_is_written_through_what_is_there() {
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
