//! Claims of a token before verification.

use credentials::{BadAccessClaims, access_claims, inspect};
use serde_json::Value;
use types::id::CredentialId;

/// Unverified claims of a token. Before the signature is verified, they may only be used to select
/// the key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct UnverifiedClaims {
    /// True if its `type` is `app`.
    pub(super) is_app: bool,
    /// The application that its `clientId` names.
    pub(super) application: Option<CredentialId>,
    /// `kid` of its header.
    pub(super) kid: Option<String>,
    /// `jti`.
    pub(super) id: Option<String>,
    /// `resources`, in the form of the token.
    pub(super) resources: Option<Value>,
    /// The OAuth client that it was issued to, or the error in its access claims (OA-8). `None` if
    /// it has no such claims.
    pub(super) client: Option<Result<String, BadAccessClaims>>,
}

impl UnverifiedClaims {
    /// `base_url` is the issuer and audience of this platform's access tokens. `None` if the text
    /// is not a token.
    pub(super) fn read(token: &str, base_url: &str) -> Option<Self> {
        let mut parts = inspect(token)?;
        let kid = text(&parts, "/header/kid");
        let is_app = parts.pointer("/claims/type").and_then(Value::as_str) == Some("app");
        let access = access_claims(parts.get("claims")?, base_url, base_url).transpose();
        Some(Self {
            client: access.map(|access| access.map(|access| access.client_id)),
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
