//! Files and folders that only their owner can read. On Unix they are created with a private mode.
//! On Windows they are as private as the user's profile folder that contains them.

use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Creates a folder.
///
/// # Errors
/// Those of the file system.
pub fn create_dir(path: &Path) -> io::Result<()> {
    builder().create(path)
}

/// Creates a folder and its missing parents.
///
/// # Errors
/// Those of the file system.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    builder().recursive(true).create(path)
}

/// Options to create a new file.
pub fn new_file() -> OpenOptions {
    let mut options = file();
    options.create_new(true);
    options
}

/// Options to write a file.
pub(crate) fn file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Writes a file atomically, readable only by its owner from its first byte on, in a folder that is
/// created if it is missing.
///
/// # Errors
/// Those of the file system.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}", std::process::id()));
    replace(path, unfinished.as_ref(), bytes)
}

/// Writes a file atomically; `unfinished` is its name until it is complete.
pub(crate) fn replace(path: &Path, unfinished: &Path, bytes: &[u8]) -> io::Result<()> {
    // Removes a leftover of an earlier process with the same id. A newly created file has the right
    // mode and is not a link.
    match fs::remove_file(unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = new_file().open(unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(unfinished, path)
}

/// True if users other than the owner can read or write the file.
#[cfg(unix)]
pub(crate) fn is_shared(metadata: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::mode(metadata) & GROUP_AND_OTHERS != 0
}

/// On other systems the folder of a user, with its content, is private by default.
#[cfg(not(unix))]
pub(crate) fn is_shared(_metadata: &Metadata) -> bool {
    false
}

/// The permissions of group and others.
#[cfg(unix)]
const GROUP_AND_OTHERS: u32 = 0o077;

/// Removes the permissions of other users.
#[cfg(unix)]
pub fn restrict(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

/// Removes the permissions of other users, on systems with file modes.
#[cfg(not(unix))]
pub fn restrict(_path: &Path) -> io::Result<()> {
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
