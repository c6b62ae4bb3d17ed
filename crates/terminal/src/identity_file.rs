//! The file with the private keys of a registered server.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tty::identity::{EndpointIdentity, IdentityFileError, InvalidKeyError, MAX_FILE};
use zeroize::Zeroizing;

use crate::enrollment::{EnrollmentError, is_id};
use crate::private;

/// Path of a server's identity, below a folder such as `~/.svc/webtty`.
///
/// # Errors
/// The id contains a path.
pub fn path(folder: &Path, server_id: &str) -> Result<PathBuf, EnrollmentError> {
    if !is_id(server_id) {
        return Err(EnrollmentError::Id(server_id.to_owned()));
    }
    let name = format!("{server_id}.identity.json");
    Ok(folder.join("identities").join(name))
}

/// Reads an identity.
///
/// # Errors
/// [`IdentityError`].
pub fn load(path: &Path) -> Result<EndpointIdentity, IdentityError> {
    let unreadable = |error| IdentityError::Io(path.to_owned(), error);
    let file = File::open(path).map_err(unreadable)?;
    if private::is_shared(&file.metadata().map_err(unreadable)?) {
        return Err(IdentityError::Shared(path.to_owned()));
    }
    let mut text = Zeroizing::new(String::with_capacity(MAX_FILE));
    // One byte more than the maximum, so that a file that is too long is detected.
    let most = u64::try_from(MAX_FILE)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let read = file.take(most).read_to_string(&mut text);
    read.map_err(unreadable)?;
    EndpointIdentity::from_file(&text)
        .map_err(|error| IdentityError::Content(path.to_owned(), error))
}

/// Reads an identity. If there is none, creates one and writes it for its owner alone.
///
/// # Errors
/// [`IdentityError`].
pub fn load_or_create(path: &Path, now: Timestamp) -> Result<EndpointIdentity, IdentityError> {
    match load(path) {
        Err(IdentityError::Io(_, error)) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let identity = EndpointIdentity::generate()?;
    private::write(path, identity.to_file(now).as_bytes())
        .map_err(|error| IdentityError::Io(path.to_owned(), error))?;
    Ok(identity)
}

/// Errors of reading and creating an identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Reading or writing failed.
    #[error("{0}: {1}")]
    Io(PathBuf, #[source] io::Error),
    /// Other accounts can read or write the file.
    #[error("{0} is accessible to other users: its mode must be 0600")]
    Shared(PathBuf),
    /// The file has another content.
    #[error("{0}: {1}")]
    Content(PathBuf, #[source] IdentityFileError),
    /// The library could not generate keys.
    #[error(transparent)]
    Keys(#[from] InvalidKeyError),
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_identity_is_created_once_for_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path(), "wsv_1").unwrap();
        let made = load_or_create(&path, Timestamp::UNIX_EPOCH).unwrap();
        let again = load_or_create(&path, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(made.public(), again.public());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(load(&path), Err(IdentityError::Shared(_))));
        private::write(&path, b"{}").unwrap();
        assert!(matches!(load(&path), Err(IdentityError::Content(..))));
        assert!(super::path(dir.path(), "../x").is_err());
    }
}
