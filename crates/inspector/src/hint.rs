//! Answers that say that the service refuses the tunnel's host name.

use serde::Serialize;

/// What an answer says is wrong with how the service is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Hint {
    /// A development server that answers only to names that it knows.
    HostRefused {
        /// Who refused.
        server: &'static str,
    },
}

impl Hint {
    /// What is wrong and what helps, one line.
    pub fn text(self) -> String {
        match self {
            Self::HostRefused { server } => format!(
                "{server} refuses the tunnel's host name; with --host-header rewrite it sees its own"
            ),
        }
    }
}
