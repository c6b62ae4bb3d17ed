//! Kind and identity of a token.

use std::str::FromStr;

/// Kind of a token: its `type` claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// Personal access token.
    Pat,
    /// Application token, signed by the application's own key.
    App,
    /// Short-lived delegated token.
    Auth,
}

impl TokenKind {
    /// The claim's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pat => "pat",
            Self::App => "app",
            Self::Auth => "auth",
        }
    }
}

impl FromStr for TokenKind {
    type Err = UnknownKind;

    fn from_str(given: &str) -> Result<Self, UnknownKind> {
        match given {
            "pat" => Ok(Self::Pat),
            "app" => Ok(Self::App),
            "auth" => Ok(Self::Auth),
            _ => Err(UnknownKind),
        }
    }
}

/// The `type` is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `pat`, `app` or `auth`")]
pub struct UnknownKind;

/// The identity that a token acts as, within its project. Two tokens of one identity may take over
/// each other's names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// `userId`.
    User(String),
    /// `clientId`.
    Client(String),
}

impl Identity {
    /// The id without its kind.
    pub fn id(&self) -> &str {
        match self {
            Self::User(id) | Self::Client(id) => id,
        }
    }
}

/// Maximum length of a token, so that a request head has space for other fields.
pub const MAX_TOKEN_BYTES: usize = 8 * 1024;
