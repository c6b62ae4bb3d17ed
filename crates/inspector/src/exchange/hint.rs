//! Detection of responses in which the service refuses the tunnel's host name.

use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::exchange::{Exchange, Version, content};

/// A problem with the publication of the service that a response indicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hint {
    /// A development server that accepts only configured host names.
    HostRefused {
        /// The server software.
        server: &'static str,
        /// True if `--host-header` works for services with this protocol.
        rewrite: bool,
    },
}

impl Hint {
    /// The problem and its solution on one line.
    pub fn text(self) -> String {
        match self {
            Self::HostRefused {
                server,
                rewrite: true,
            } => format!(
                "{server} refuses the tunnel's host name; use --host-header rewrite to send the \
                 service's own"
            ),
            Self::HostRefused { server, .. } => {
                format!(
                    "{server} refuses the tunnel's host name; add that name to its allowed \
                         hosts"
                )
            }
        }
    }

    /// Derives the hint from a response. Only short error responses are searched.
    pub(crate) fn of(exchange: &Exchange) -> Option<Self> {
        let response = exchange.response.as_ref()?;
        if !matches!(response.status, 400 | 403) || exchange.response_body.kept.is_empty() {
            return None;
        }
        let shown = content::decode_body(&response.fields, &exchange.response_body);
        let start = shown.bytes.get(..SEARCHED_BYTES).unwrap_or(&shown.bytes);
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

/// Texts of each server software, with its name. The second text of Django is on its debug page.
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

/// Searched bytes of a body. Each text appears early: Django's debug page has it in its title.
const SEARCHED_BYTES: usize = 16 * 1024;
