//! Files and folders that nobody but their owner reads. On Unix their mode says so from the first
//! moment on; on Windows they are as private as the folder of the user's profile that they are in.

use std::{
    fs::{DirBuilder, OpenOptions},
    io,
    path::Path,
};

/// Makes a folder.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    builder().create(path)
}

/// Makes a folder and those around it, where they are missing.
pub(crate) fn create_dir_all(path: &Path) -> io::Result<()> {
    builder().recursive(true).create(path)
}

/// To open a file that is made by this.
pub(crate) fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Takes everybody else's rights away.
#[cfg(unix)]
pub(crate) fn restrict(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

/// Takes everybody else's rights away, where that is said by a mode.
#[cfg(not(unix))]
pub(crate) fn restrict(_path: &Path) -> io::Result<()> {
    Ok(())
}

fn builder() -> DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "there is no mode to set"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}
