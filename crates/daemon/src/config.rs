//! Configuration: a YAML file, then the environment, into one checked type.

mod secret;

use std::fmt;

pub use self::secret::SecretString;

/// Why a configuration is refused: which key, where it was written, and what is wrong with it.
///
/// `Display` is one line; it never repeats a value that could be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The dotted key (`tls.listen_addr`, `auth.jwt.public_keys.0`); empty for the whole file.
    pub key: String,
    /// What is wrong, as a sentence without its full stop.
    pub message: String,
    /// Where the value was written; `None` for a default or a key that is missing.
    pub origin: Option<Origin>,
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the file; line and column count from 1.
    File {
        /// The path as it was given.
        path: String,
        /// The line.
        line: u64,
        /// The column, in characters.
        column: u64,
    },
    /// In an environment variable of this name.
    Environment(String),
}

impl ConfigError {
    /// An error at a key whose origin [`Source`] knows.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            message: message.into(),
            origin: None,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(f, "{path}:{line}:{column}"),
            Self::Environment(name) => f.write_str(name),
        }
    }
}
