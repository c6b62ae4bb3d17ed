//! Files and folders that only their owner can read. On Unix they are created with a private mode.
//! On Windows they are as private as the user's profile folder that contains them.

use std::{
    fs::{DirBuilder, OpenOptions},
    io,
    path::Path,
};

/// Creates a folder.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    builder().create(path)
}

/// Creates a folder and its missing parents.
pub(crate) fn create_dir_all(path: &Path) -> io::Result<()> {
    builder().recursive(true).create(path)
}

/// Options to create a file.
pub(crate) fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Removes the permissions of other users.
#[cfg(unix)]
pub(crate) fn restrict(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

/// Removes the permissions of other users, on systems with file modes.
#[cfg(not(unix))]
pub(crate) fn restrict(_path: &Path) -> io::Result<()> {
    Ok(())
}

fn builder() -> DirBuilder {
    #[cfg_attr(
        not(unix),
        expect(
            unused_mut,
            reason = "file modes are not supported on this \
                                                       system"
        )
    )]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}
