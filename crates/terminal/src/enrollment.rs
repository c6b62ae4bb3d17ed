//! Registration data on a host: the id of its server, and the path of its keys.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::private;

/// The file that an enrollment creates, in YAML with the keys of the published format. It contains
/// no secret. But it decides which keys a server uses, so only its owner may write it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Enrollment {
    /// Always [`VERSION`].
    pub version: u32,
    /// The id of the record.
    pub server_id: String,
    /// Name of the server.
    pub server_name: String,
    /// Id of the workspace.
    pub workspace_id: String,
    /// Id of the project.
    pub project_id: String,
    /// URL of the platform that has the record.
    pub api_url: String,
    /// Path of the private keys; a relative path starts at this file's folder.
    pub identity_file: PathBuf,
    /// The public key for end-to-end encryption, base64url.
    pub server_public_key: String,
    /// Id of the key that signs admissions, base64url.
    pub server_signing_key_id: String,
    /// The public key that verifies admissions: base64url of its DER.
    pub server_signing_public_key: String,
    /// Fingerprint of both keys: `sha256:` and base64url.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server_fingerprint: String,
    /// Algorithm of the encryption key.
    pub server_key_algorithm: String,
    /// `disabled`, `explicit_key` or `workspace_managed`.
    pub encryption_policy: String,
    /// Always `enrolled`.
    pub enrollment_status: String,
    /// Time of the enrollment, RFC 3339.
    pub enrolled_at: String,
}

impl Enrollment {
    /// Path of a server's enrollment, below a folder such as `~/.svc/webtty`.
    ///
    /// # Errors
    /// The id contains a path.
    pub fn path(folder: &Path, server_id: &str) -> Result<PathBuf, EnrollmentError> {
        if !is_id(server_id) {
            return Err(EnrollmentError::Id(server_id.to_owned()));
        }
        Ok(folder.join("enrollments").join(format!("{server_id}.yaml")))
    }

    /// Reads an enrollment.
    ///
    /// # Errors
    /// The file cannot be read, other users can write it, or it is not an enrollment.
    pub fn load(path: &Path) -> Result<Self, EnrollmentError> {
        let unreadable = |error| EnrollmentError::Io(path.to_owned(), error);
        let file = File::open(path).map_err(unreadable)?;
        if private::is_shared(&file.metadata().map_err(unreadable)?) {
            return Err(EnrollmentError::Shared(path.to_owned()));
        }
        let mut text = String::new();
        let read = file.take(MAX_BYTES).read_to_string(&mut text);
        read.map_err(unreadable)?;
        let wrong = |what: String| EnrollmentError::Content(path.to_owned(), what);
        let mut read: Self = serde_saphyr::from_str(&text)
            .map_err(|error| wrong(error.without_snippet().to_string()))?;
        if read.version != VERSION {
            return Err(wrong(format!("version {} is not known", read.version)));
        }
        if !is_id(&read.server_id) {
            return Err(EnrollmentError::Id(read.server_id));
        }
        if let Some(folder) = path.parent() {
            read.identity_file = folder.join(&read.identity_file);
        }
        Ok(read)
    }

    /// Writes an enrollment atomically, for its owner alone.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), EnrollmentError> {
        let text = serde_saphyr::to_string(self)
            .map_err(|error| EnrollmentError::Content(path.to_owned(), error.to_string()))?;
        private::write(path, text.as_bytes())
            .map_err(|error| EnrollmentError::Io(path.to_owned(), error))
    }
}

/// Errors of reading and writing an enrollment.
#[derive(Debug, thiserror::Error)]
pub enum EnrollmentError {
    /// Reading or writing failed.
    #[error("{0}: {1}")]
    Io(PathBuf, #[source] io::Error),
    /// Other accounts can read or write the file.
    #[error("{0} is accessible to other users: its mode must be 0600")]
    Shared(PathBuf),
    /// The file has another content.
    #[error("{0} is not an enrollment: {1}")]
    Content(PathBuf, String),
    /// The id is invalid: it may contain letters, digits, `.`, `_` and `-`.
    #[error("`{0}` is not the id of a server")]
    Id(String),
}

/// True if this can be the id of a server: the published pattern, except for names of folders.
pub fn is_id(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_ID).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(known)
}

/// The version of the file.
pub const VERSION: u32 = 1;

/// Maximum length, as for ids in messages.
const MAX_ID: usize = tty::message::limits::MAX_ID;

/// Maximum size of a file, far more than all fields need.
const MAX_BYTES: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn enrollment() -> Enrollment {
        Enrollment {
            version: VERSION,
            server_id: "wsv_1".to_owned(),
            server_name: "build: host".to_owned(),
            identity_file: "../identities/wsv_1.identity.json".into(),
            encryption_policy: "disabled".to_owned(),
            enrollment_status: "enrolled".to_owned(),
            ..Enrollment::default()
        }
    }

    #[test]
    fn an_enrollment_is_written_for_its_owner_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = Enrollment::path(dir.path(), "wsv_1").unwrap();
        enrollment().save(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = Enrollment::load(&path).unwrap();
        assert_eq!(read.server_name, "build: host");
        assert_eq!(
            read.identity_file,
            dir.path()
                .join("enrollments/../identities/wsv_1.identity.json")
        );
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("serverId: wsv_1"), "{text}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            Enrollment::load(&path),
            Err(EnrollmentError::Shared(_))
        ));
    }

    #[test]
    fn invalid_enrollments_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e.yaml");
        for text in ["", "[]", "version: 1\n", "version: 2\nserverId: x\n"] {
            private::write(&path, text.as_bytes()).unwrap();
            assert!(
                matches!(Enrollment::load(&path), Err(EnrollmentError::Content(..))),
                "{text}"
            );
        }
        let mut other = enrollment();
        other.version = 2;
        other.save(&path).unwrap();
        assert!(Enrollment::load(&path).is_err());
        for id in ["", "../x", "a/b", ".x", "a b"] {
            assert!(Enrollment::path(dir.path(), id).is_err(), "{id}");
        }
    }
}
