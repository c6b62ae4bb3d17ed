//! Key of the recordings, in its own file with 64 hex digits.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use tty::recording::vault::VaultKey;

use crate::random::random_bytes;

/// Largest key file that is read: room for the digits and the end of a line.
const MAX_FILE: u64 = 256;

/// Reads the key.
///
/// # Errors
/// The file cannot be read, or is not a key.
pub(super) fn read(path: &Path) -> io::Result<VaultKey> {
    let bytes = daemon::files::read_bounded(path, MAX_FILE)?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let mut key = [0; 32];
    hex::decode_to_slice(text.trim(), &mut key)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "expected 64 hex digits"))?;
    Ok(VaultKey::new(key))
}

/// Reads the key, or creates one if the file does not exist.
///
/// # Errors
/// The file cannot be read or created.
pub(super) fn read_or_make(path: &Path) -> io::Result<VaultKey> {
    match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    let bytes = random_bytes();
    let text = hex::encode(bytes);
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(path);
    made.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()
    })?;
    // The directory is synced. Otherwise a crash could lose a key that already sealed data.
    if let Some(parent) = path.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(VaultKey::new(bytes))
}
