//! What a token says of itself.

use credentials::inspect;
use serde_json::Value;
use types::id::CredentialId;

/// What a token says of itself. Until its signature was verified, all that may follow from it is
/// which key to ask.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Said {
    /// Whether its `type` is `app`.
    pub(super) is_app: bool,
    /// The application that its `clientId` names.
    pub(super) application: Option<CredentialId>,
    /// `kid` of its header.
    pub(super) kid: Option<String>,
    /// `jti`.
    pub(super) id: Option<String>,
    /// `resources`, as they are written.
    pub(super) resources: Option<Value>,
}

impl Said {
    /// `None`: it is no token.
    pub(super) fn read(token: &str) -> Option<Self> {
        let mut parts = inspect(token)?;
        let kid = text(&parts, "/header/kid");
        let is_app = parts.pointer("/claims/type").and_then(Value::as_str) == Some("app");
        Some(Self {
            is_app,
            application: text(&parts, "/claims/clientId").and_then(|id| id.parse().ok()),
            kid,
            id: text(&parts, "/claims/jti"),
            resources: parts.pointer_mut("/claims/resources").map(Value::take),
        })
    }
}

fn text(parts: &Value, pointer: &str) -> Option<String> {
    parts.pointer(pointer)?.as_str().map(str::to_owned)
}
