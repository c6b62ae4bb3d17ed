//! TURN issuance, by id and by endpoint of a project (CP-6, TU-1, TU-2, TU-3).

use serde::{Deserialize, Serialize};
use serde_json::json;
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::{Access, Body, Method, Operation, Schemas, SuccessResponse, add, not_null};

/// Issues a TURN credential for the project with an id.
pub const ISSUE_BY_ID: &Operation = &Operation {
    stable: true,
    body: Some(Body::optional(
        "IssueTurnCredential",
        || json!({"ttlSeconds": 600}),
    )),
    refusals: &[409],
    ..Operation::new(
        "create_project_turn_credentials",
        Method::Post,
        "/api/projects/tunnels/{project_id}/turn-server/credentials",
        "Create a TURN credential for a project",
        Access::Permitted(
            Permission::TurnCredentialsCreate,
            &[Rule {
                resource: "turnCredentials",
                actions: &["create"],
            }],
        ),
        SuccessResponse::json(200, "TurnCredential"),
    )
};

/// Issues a TURN credential for the project with an endpoint.
pub const ISSUE_BY_ENDPOINT: &Operation = &Operation {
    id: "create_resolved_project_turn_credentials",
    path: "/api/projects/tunnels/resolve/{project_endpoint}/turn-server/credentials",
    summary: "Create a TURN credential for the project of an endpoint",
    ..*ISSUE_BY_ID
};

/// The public key of the relay of a realm, for applications that derive passwords themselves.
pub const RELAY_KEY: &Operation = &Operation {
    refusals: &[404],
    ..Operation::new(
        "get_turn_relay_key",
        Method::Get,
        "/keyrings/turn/{keyring}",
        "The public key of a realm's relay, as <realm>.spki.der.hex: SPKI in DER, in hex",
        Access::Public,
        SuccessResponse::of_type("text/plain; charset=utf-8", "RelayKey"),
    )
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[ISSUE_BY_ID, ISSUE_BY_ENDPOINT, RELAY_KEY];

pub(super) fn schemas(schemas: &mut Schemas) {
    use utoipa::openapi::schema::{ObjectBuilder, Type};

    let hex = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^([0-9a-f]{2})+$"))
        .build();
    schemas.push(("RelayKey".to_owned(), hex.into()));
    add::<IssueTurnCredential>(schemas);
    add::<TurnCredential>(schemas);
}

/// Default lifetime of a TURN credential in seconds.
pub const DEFAULT_TTL_SECONDS: u32 = 600;
/// Maximum lifetime of a TURN credential in seconds (TU-1).
pub const MAX_TTL_SECONDS: u32 = 3600;

/// Options of a new TURN credential (TU-1).
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IssueTurnCredential {
    /// Lifetime in seconds; 600 if absent.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3600, nullable = false)]
    pub ttl_seconds: Option<u32>,
}

/// A TURN credential, in the form that browsers accept.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnCredential {
    /// `v1:<exp>:api:<project endpoint>:<user id>` (TU-2); `exp` in Unix seconds.
    #[schema(example = "v1:1767225600:api:e7e8a732:usr_01h455vb4pex5vsknk084sn02q")]
    pub username: String,
    /// The password.
    pub credential: String,
    /// Addresses of the relay, in the order to try them.
    #[schema(example = json!(["turn:relay.example.com:3478?transport=udp"]))]
    pub urls: Vec<String>,
    /// Remaining lifetime in seconds.
    pub ttl: u32,
}
