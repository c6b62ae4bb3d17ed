//! `POST /api/tokens`: short-lived delegated tokens that never have more permissions than their
//! parent.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::{Access, Body, Method, Operation, Schemas, SuccessResponse, add};

/// Mints a delegated token.
pub const MINT_TOKEN: &Operation = &Operation {
    body: Some(Body::required("MintToken", || {
        json!({
            "permissions": ["tunnels.resources.read-only"],
            "resources": {"tunnels": {"scopes": {"tunnels": {"list": true}}}},
            "ttlSeconds": 300,
        })
    })),
    refusals: &[409],
    ..Operation::new(
        "mint_token",
        Method::Post,
        "/api/tokens",
        "Mint a short-lived delegated token",
        Access::Permitted(
            Permission::AccountTokensCreate,
            &[Rule {
                resource: "tokens",
                actions: &["create"],
            }],
        ),
        SuccessResponse::json(200, "MintedToken"),
    )
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[MINT_TOKEN];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<MintToken>(schemas);
    add::<MintedToken>(schemas);
}

/// Default lifetime of a delegated token in seconds.
pub const DEFAULT_TTL_SECONDS: u32 = 300;
/// Maximum lifetime of a delegated token in seconds.
pub const MAX_TTL_SECONDS: u32 = 3600;

/// Properties of a new delegated token.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MintToken {
    /// Permissions, all of which the caller must have; `null`: all permissions of the caller.
    #[schema(required = true)]
    #[serde(deserialize_with = "Option::deserialize")]
    pub permissions: Option<Vec<Permission>>,
    /// Further boundaries. Those of the caller apply in addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub resources: Option<Value>,
    /// Lifetime in seconds; 300 if absent. It never exceeds the lifetime of the caller's own
    /// credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3600)]
    pub ttl_seconds: Option<u32>,
}

/// A delegated token.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MintedToken {
    /// A compact JWT of type `auth`.
    pub token: String,
    /// Expiry of the token.
    #[schema(format = DateTime)]
    pub expires_at: String,
}
