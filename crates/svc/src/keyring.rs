//! The system keyring, which stores a token encrypted and makes it available to programs of its
//! owner.
//!
//! On Linux it is the desktop's Secret Service, on macOS the keychain. A build without the feature
//! `keyring` fails with a specific exit code.
//!
//! Calls block, because a keyring may ask its owner to unlock it and wait for the answer.

// Test builds also compile it, so that one set of features tests both modules.
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

/// The key of a token in the keyring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Account(String);

impl Account {
    /// The account with this name.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Stores a token, and replaces the previous one.
    pub(crate) fn store(&self, token: &Token) -> Result<(), Failure> {
        system::keep(&self.0, token.expose())
    }

    /// Reads the token. `None` if there is none.
    pub(crate) fn token(&self) -> Result<Option<Token>, Failure> {
        let kept = system::read(&self.0)?;
        Ok(kept.map(|token| Token::new(&token)))
    }

    /// Removes the token, if there is one.
    pub(crate) fn delete(&self) -> Result<(), Failure> {
        system::forget(&self.0)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Fails if tokens cannot be stored, before one is requested.
pub(crate) fn ready() -> Result<(), Failure> {
    system::ready()
}
