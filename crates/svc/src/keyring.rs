//! The keyring of the system, which keeps a token encrypted and shows it to its owner's programs.
//!
//! It is the secret service of a desktop on Linux, and the keychain on macOS. A build without the
//! feature `keyring` has none, and says so with an exit code of its own.
//!
//! Calls block: a keyring may ask its owner to unlock it, and waits as long as the owner does.

// Compiled for tests of every build, so that one set of features tests both.
#[cfg(any(test, not(feature = "keyring")))]
mod absent;
#[cfg(feature = "keyring")]
mod system;

use std::fmt;

use client::Token;
use serde::{Deserialize, Serialize};

#[cfg(not(feature = "keyring"))]
use self::absent as system;
use crate::failure::Failure;

/// The place of one token in the keyring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Account(String);

impl Account {
    /// The account of this name.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Keeps a token, in place of the one before.
    pub(crate) fn keep(&self, token: &Token) -> Result<(), Failure> {
        system::keep(&self.0, token.expose())
    }

    /// The token; `None` where none is kept.
    pub(crate) fn token(&self) -> Result<Option<Token>, Failure> {
        let kept = system::read(&self.0)?;
        Ok(kept.map(|token| Token::new(&token)))
    }

    /// Removes the token, where one is kept.
    pub(crate) fn forget(&self) -> Result<(), Failure> {
        system::forget(&self.0)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Fails where tokens cannot be kept, before one is asked for.
pub(crate) fn ready() -> Result<(), Failure> {
    system::ready()
}
