//! Properties of a stored token that can be shown without the token itself.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::context::TokenStorage;

/// The displayed properties of a token. They never include the token or a part of it.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct StoredToken {
    /// `file` or `keyring`.
    kept_in: &'static str,
    /// `pat`, `app` or `auth`.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// The user or application that it authenticates.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    /// Expiry (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    expired: bool,
}

impl StoredToken {
    /// The token of a context. The keyring is not read, because that may prompt for its password.
    pub(super) fn of(kept: &TokenStorage) -> Option<Self> {
        match kept {
            _ if kept.is_none() => None,
            TokenStorage::Token(token) => Some(Self::read(token)),
            TokenStorage::KeyringAccount(_) => Some(Self {
                kept_in: "keyring",
                ..Self::default()
            }),
        }
    }

    /// Reads the claims of a token. Nothing is verified.
    pub(super) fn read(token: &str) -> Self {
        let seen = credentials::inspect(token.trim()).unwrap_or_default();
        let claims = seen.get("claims").unwrap_or(&Value::Null);
        let text = |name: &str| Some(claims.get(name)?.as_str()?.to_owned());
        let ends = claims.get("exp").and_then(Value::as_i64);
        Self {
            kept_in: "file",
            kind: text("type"),
            identity: text("userId").or_else(|| text("clientId")),
            expires_at: ends
                .and_then(|at| Timestamp::from_second(at).ok())
                .map(|at| at.to_string()),
            expired: ends.is_some_and(|at| at <= Timestamp::now().as_second()),
        }
    }
}

impl fmt::Display for StoredToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kept_in == "keyring" {
            return f.write_str("in the keyring");
        }
        match &self.kind {
            Some(kind) => f.write_str(kind)?,
            None => return f.write_str("not a readable token"),
        }
        if let Some(identity) = &self.identity {
            write!(f, " of {identity}")?;
        }
        match (&self.expires_at, self.expired) {
            (Some(at), true) => write!(f, ", expired at {at}"),
            (Some(at), false) => write!(f, ", valid until {at}"),
            (None, _) => Ok(()),
        }
    }
}
