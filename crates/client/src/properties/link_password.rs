//! Link passwords: passwords of visitors without an account.

use std::fmt;

use wire::message::{BasicAuthUser, Secret};

/// A user name and the hash of its password. `Debug` prints neither.
///
/// The hash is a PHC string of argon2id, such as `$argon2id$v=19$m=19456,t=2,p=1$…`. The password
/// itself is never sent.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkPassword {
    user: String,
    hash: Secret,
}

impl LinkPassword {
    /// A user with this name. An empty name stands for every name that has no entry.
    pub fn new(user: impl Into<String>, hash: impl Into<String>) -> Self {
        let hash: String = hash.into();
        Self {
            user: user.into(),
            hash: hash.into(),
        }
    }

    pub(super) fn to_wire(&self) -> BasicAuthUser {
        BasicAuthUser {
            user: self.user.clone(),
            password_hash: Some(self.hash.clone()),
        }
    }
}

impl fmt::Debug for LinkPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkPassword")
    }
}
