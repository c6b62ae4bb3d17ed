//! `GET /api/whoami` (CP-1): the identity and the permissions of the caller's credential.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::permission::Permission;
use utoipa::ToSchema;

use super::{Access, Operation, Schemas, add};

/// Identity of the caller. Any valid credential is enough; no permission is needed.
pub const WHOAMI: &Operation = &Operation {
    stable: true,
    ..Operation::get(
        "get_whoami",
        "/api/whoami",
        "Get the identity and permissions of the credential",
        Access::Authenticated,
        "Whoami",
    )
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[WHOAMI];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<Whoami>(schemas);
}

/// The identity of a caller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Whoami {
    /// Id of the user; for an application, the id of its owner.
    #[schema(example = "usr_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// Role on this platform.
    #[schema(example = "user")]
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub name: Option<String>,
    #[schema(example = "ada@example.com")]
    pub email: String,
    /// Kind of the credential.
    #[serde(rename = "type")]
    pub kind: CallerKind,
    /// Workspaces that the credential has access to.
    pub workspace_ids: Vec<String>,
    /// Permissions of the credential after its stored restrictions. In each workspace the user's
    /// role limits them further.
    #[schema(value_type = Vec<String>, example = json!(["account.projects.read-only"]))]
    pub permissions: Vec<Permission>,
    /// The boundaries that apply in addition to the permissions; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object)]
    pub resources: Option<Value>,
    /// Expiry; absent if the credential does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub expires_at: Option<String>,
}

/// Kind of a credential on the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallerKind {
    /// Personal access token.
    Pat,
    /// Application token.
    App,
    /// Short-lived delegated token.
    Auth,
    /// A person's browser session.
    Session,
}
