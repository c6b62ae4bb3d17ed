//! Replacement for the folder module on systems where a folder cannot be served. Every user of the
//! machine could connect to its socket, and file names there have special cases that the module
//! does not handle.

use std::path::{Path, PathBuf};

use tokio::runtime::Handle;

use crate::failure::Failure;

/// Options for serving a folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Also serve names that start with a dot.
    pub(crate) hidden: bool,
    /// Serve `index.html` of the folder for paths without a file.
    pub(crate) spa: bool,
}

/// A folder that is being served.
#[derive(Debug)]
pub(crate) enum Folder {}

impl Folder {
    /// Always fails.
    pub(crate) fn serve(
        folder: &Path,
        _options: &Options,
        _runtime: &Handle,
    ) -> Result<Self, Failure> {
        Err(Failure::usage(format!(
            "the folder {} cannot be served on this system",
            folder.display()
        ))
        .hint("run a web server for the folder, and publish its port"))
    }

    /// Path of the socket.
    pub(crate) fn socket(&self) -> PathBuf {
        match *self {}
    }
}
