//! The beginning of a chain of credentials.

use std::fmt;
use std::sync::Arc;

/// What stands at the beginning of the chain that a token comes from: a token is minted from a
/// credential or a browser session, and a credential may have been issued by another one. Two tokens
/// with the same root are the same party, whatever they say of themselves.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Root {
    /// A browser session of a person on the platform, by its id.
    Session(Arc<str>),
    /// A stored credential that no other credential issued, by its id.
    Credential(Arc<str>),
    /// The token itself, by the SHA-256 of its text: nothing is known to stand behind it.
    Token([u8; 32]),
}

impl Root {
    /// Whether a person signed in with a browser: programs that act for the person have only tokens
    /// of stored credentials.
    pub fn is_session(&self) -> bool {
        matches!(self, Self::Session(_))
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(id) | Self::Credential(id) => write!(f, "Root({id})"),
            Self::Token(_) => f.write_str("Root(token)"),
        }
    }
}
