//! A folder as a service, on systems where it is none: its files would be served on a socket that
//! everybody on the machine could use, and names of files mean more there than this knows.

use std::path::{Path, PathBuf};

use tokio::runtime::Handle;

use crate::failure::Failure;

/// What of a folder is served, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Names with a dot in front too.
    pub(crate) hidden: bool,
    /// `index.html` of the folder for paths that name no file.
    pub(crate) spa: bool,
}

/// A folder that is being served.
#[derive(Debug)]
pub(crate) enum Folder {}

impl Folder {
    /// Refuses.
    pub(crate) fn serve(
        folder: &Path,
        _options: &Options,
        _runtime: &Handle,
    ) -> Result<Self, Failure> {
        Err(Failure::usage(format!(
            "the folder {} cannot be served on this system",
            folder.display()
        ))
        .hint("run a web server for it, and publish that one's port"))
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        match *self {}
    }
}
