//! Answers that say that the service refuses the tunnel's host name.

use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::{
    content,
    exchange::{Exchange, Version},
};

/// What an answer says is wrong with how the service is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hint {
    /// A development server that answers only to names that it knows.
    HostRefused {
        /// Who refused.
        server: &'static str,
        /// Whether `--host-header` is for services that speak as this one does.
        rewrite: bool,
    },
}

impl Hint {
    /// What is wrong and what helps, one line.
    pub fn text(self) -> String {
        match self {
            Self::HostRefused {
                server,
                rewrite: true,
            } => format!(
                "{server} refuses the tunnel's host name; with --host-header rewrite it sees its own"
            ),
            Self::HostRefused { server, .. } => {
                format!("{server} refuses the tunnel's host name; let it answer to that name, too")
            }
        }
    }

    /// What an answer says. Only short answers of refusal are looked into.
    pub(crate) fn of(exchange: &Exchange) -> Option<Self> {
        let response = exchange.response.as_ref()?;
        if !matches!(response.status, 400 | 403) || exchange.response_body.kept.is_empty() {
            return None;
        }
        let shown = content::shown(&response.fields, &exchange.response_body);
        let start = shown.bytes.get(..LOOKED_AT).unwrap_or(&shown.bytes);
        let words = String::from_utf8_lossy(start);
        let (_, server) = SIGNS
            .iter()
            .find(|(signs, _)| signs.iter().all(|sign| words.contains(sign)))?;
        let http1 = exchange.request.version != Version::Http2;
        Some(Self::HostRefused {
            server,
            rewrite: http1 && exchange.tls.is_none(),
        })
    }
}

impl Serialize for Hint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self::HostRefused { server, .. } = self;
        let mut hint = serializer.serialize_struct("Hint", 3)?;
        hint.serialize_field("code", "host_refused")?;
        hint.serialize_field("server", server)?;
        hint.serialize_field("text", &self.text())?;
        hint.end()
    }
}

/// What each says, and who it is. The second of Django is its page for developers.
const SIGNS: &[(&[&str], &str)] = &[
    (&["Blocked request. This host", "vite.config"], "Vite"),
    (
        &["Blocked request. This host", "allowedHosts"],
        "The development server",
    ),
    (&["Invalid Host header"], "The development server"),
    (&["Invalid HTTP_HOST header", "ALLOWED_HOSTS"], "Django"),
    (&["DisallowedHost"], "Django"),
    (&["Blocked hosts"], "Rails"),
];

/// Each says it early: Django's page puts it in its title.
const LOOKED_AT: usize = 16 * 1024;
