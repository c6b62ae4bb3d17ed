//! The root of a chain of credentials.

use std::fmt;
use std::sync::Arc;

/// The root of the chain that a token comes from. A token is minted from a credential or a browser
/// session, and a credential may have been issued by another one. Two tokens with the same root
/// belong to the same party, whatever their claims are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Root {
    /// A browser session of a person on the platform, by its id.
    Session(Arc<str>),
    /// A stored credential that no other credential issued, by its id.
    Credential(Arc<str>),
    /// The token itself, by the SHA-256 of its text, if no other root is recorded.
    Token([u8; 32]),
}

impl Root {
    /// True if the root is a browser session of a person. Programs that act for a person only have
    /// tokens of stored credentials.
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
