//! State of `svc up` about its administrator, stored for the next start.
//!
//! The password is stored unencrypted in a file that only its owner can read. A reader of this file
//! could read the database and the keys beside it as well.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};
use terminal::private;

use crate::failure::Failure;

/// The stored state.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedUpState {
    /// Email address of the administrator's login.
    pub(super) admin_email: String,
    /// The generated password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) admin_password: Option<String>,
    /// The administrator's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
}

impl SavedUpState {
    /// Reads the state in `data`. At the first start it contains only the email address `email`.
    pub(super) fn read(data: &Path, email: &str) -> Result<Self, Failure> {
        let path = data.join(FILE);
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                Failure::usage(format!("{} cannot be used: {error}", path.display()))
                    .hint("remove the file; the account stays, but its password is no longer shown")
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self {
                admin_email: email.to_owned(),
                admin_password: None,
                token: None,
            }),
            Err(error) => Err(Failure::from_error(
                &format!("cannot read {}", path.display()),
                error,
            )),
        }
    }

    /// Refuses the directory of the other kind of `svc up`: users, keys and addresses of a local
    /// platform are those of one machine.
    pub(super) fn check_kind(data: &Path, is_public: bool) -> Result<(), Failure> {
        let of_new = if is_public { "" } else { LOCAL_EMAIL };
        let is_local = Self::read(data, of_new)?.admin_email == LOCAL_EMAIL;
        if is_local != is_public {
            return Ok(());
        }
        let (kind, hint) = if is_public {
            (
                "without",
                "give another --data-dir, or remove that directory",
            )
        } else {
            ("with", "give another --data-dir, or start it with --public")
        };
        let message = format!("{} belongs to a `svc up` {kind} --public", data.display());
        Err(Failure::usage(message).hint(hint))
    }

    /// Writes the state, readable only by its owner.
    pub(super) fn write(&self, data: &Path) -> Result<(), Failure> {
        let path = data.join(FILE);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Failure::from_error("cannot save the password", error))?;
        private::write(&path, &text).map_err(|error| {
            Failure::from_error(&format!("cannot write {}", path.display()), error)
        })
    }
}

impl std::fmt::Debug for SavedUpState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SavedUpState")
            .field("admin_email", &self.admin_email)
            .finish_non_exhaustive()
    }
}

const FILE: &str = "up.json";

/// No mail is delivered there. Mails are files in the data directory.
pub(super) const LOCAL_EMAIL: &str = "admin@localhost";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_file_is_private_and_can_be_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = SavedUpState::read(dir.path(), LOCAL_EMAIL).unwrap();
        assert!(kept.admin_password.is_none() && kept.token.is_none());
        kept.admin_password = Some("secret".to_owned());
        kept.write(dir.path()).unwrap();
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let again = SavedUpState::read(dir.path(), LOCAL_EMAIL).unwrap();
        assert_eq!(again.admin_password.as_deref(), Some("secret"));
        assert!(!format!("{again:?}").contains("secret"));
    }

    #[test]
    fn the_directory_of_the_other_kind_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for is_public in [true, false] {
            SavedUpState::check_kind(dir.path(), is_public).unwrap();
        }
        for (email, is_public) in [(LOCAL_EMAIL, false), ("ada@example.com", true)] {
            let saved = SavedUpState::read(&dir.path().join("new"), email).unwrap();
            saved.write(dir.path()).unwrap();
            SavedUpState::check_kind(dir.path(), is_public).unwrap();
            let failure = SavedUpState::check_kind(dir.path(), !is_public).unwrap_err();
            assert!(failure.message().contains("--public"), "{failure}");
            assert!(failure.next_step().unwrap().contains("--data-dir"));
        }
    }

    #[test]
    fn a_file_of_something_else_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "[]").unwrap();
        let failure = SavedUpState::read(dir.path(), LOCAL_EMAIL).unwrap_err();
        assert!(failure.to_string().contains("up.json"), "{failure}");
    }
}
