//! Long-lived credentials (CP-16): personal access tokens, applications, client certificates.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::{
    Access, Answer, Body, Method, Operation, Paging, Parameter, Schemas, Shape, add, given,
};

/// Lists the caller's credentials.
pub const LIST: &Operation = &Operation {
    query: &[
        Parameter {
            name: "q",
            description: "Part of the name, in any case.",
            shape: Shape::Text,
        },
        Parameter {
            name: "type",
            description: "Those of this type.",
            shape: Shape::OneOf(&["pat", "app", "mtls"]),
        },
        Parameter {
            name: "status",
            description: "Those in this status. What was revoked is never listed.",
            shape: Shape::OneOf(&["active", "expired"]),
        },
        Parameter {
            name: "order",
            description: "Oldest first (asc, the default) or newest first.",
            shape: Shape::OneOf(&["asc", "desc"]),
        },
        Parameter {
            name: "page",
            description: "The page, from 1.",
            shape: Shape::Integer(1, 1_000_000),
        },
        Parameter {
            name: "pageSize",
            description: "Credentials of a page; 20 where it is absent.",
            shape: Shape::Integer(1, 100),
        },
    ],
    ..Operation::get(
        "list_credentials",
        "/api/credentials",
        "List credentials",
        Access::Permitted(Permission::AccountCredentialsReadOnly, &[rule(&["read"])]),
        "CredentialList",
    )
};

/// Gets one of the caller's credentials.
pub const GET: &Operation = &Operation {
    refusals: &[404],
    ..Operation::get(
        "get_credential",
        "/api/credentials/{credential_id}",
        "Get a credential",
        Access::Permitted(Permission::AccountCredentialsReadOnly, &[rule(&["read"])]),
        "Credential",
    )
};

/// Issues a credential.
pub const CREATE: &Operation = &Operation {
    id: "create_credential",
    method: Method::Post,
    path: "/api/credentials",
    summary: "Issue a credential",
    access: Access::Permitted(
        Permission::AccountCredentialsReadWrite,
        &[rule(&["create"])],
    ),
    stable: false,
    query: &[],
    body: Some(Body {
        schema: "CreateCredential",
        required: true,
        example: || {
            json!({
                "type": "pat",
                "name": "laptop",
                "permissions": ["account.projects.read-only", "tunnels.resources.read-only"],
                "expiresAt": "2030-01-01T00:00:00Z",
            })
        },
    }),
    answer: Answer::json(201, "IssuedCredential"),
    refusals: &[409],
};

/// Replaces what a credential proves itself with.
pub const ROTATE: &Operation = &Operation {
    id: "rotate_credential",
    method: Method::Post,
    path: "/api/credentials/{credential_id}/rotate",
    summary: "Replace the token, the key or the certificate of a credential",
    access: Access::Permitted(
        Permission::AccountCredentialsReadWrite,
        &[rule(&["update"])],
    ),
    stable: false,
    query: &[],
    body: Some(Body {
        schema: "RotateCredential",
        required: false,
        example: || json!({"overlapSeconds": 3600}),
    }),
    answer: Answer::json(200, "IssuedCredential"),
    refusals: &[409],
};

/// Revokes a credential, and with it every token that was minted from it. What it issued stays,
/// unless the caller asks for that too.
pub const REVOKE: &Operation = &Operation {
    id: "revoke_credential",
    method: Method::Delete,
    path: "/api/credentials/{credential_id}",
    summary: "Revoke a credential",
    access: Access::Permitted(
        Permission::AccountCredentialsReadWrite,
        &[rule(&["delete"])],
    ),
    stable: false,
    query: &[Parameter {
        name: "issued",
        description: "With true, every credential that was issued with this one, or with one of \
                      those, is revoked too, also where this one was revoked before.",
        shape: Shape::OneOf(&["true", "false"]),
    }],
    body: None,
    answer: Answer::NO_CONTENT,
    refusals: &[],
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[LIST, CREATE, GET, ROTATE, REVOKE];

const fn rule(actions: &'static [&'static str]) -> Rule {
    Rule {
        resource: "credentials",
        actions,
    }
}

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<CredentialList>(schemas);
    add::<CreateCredential>(schemas);
    add::<RotateCredential>(schemas);
    add::<IssuedCredential>(schemas);
}

/// Credentials of one person that can be in force at once: more than anybody looks after, and few
/// enough that a page or two show them all.
pub const MAX_CREDENTIALS: u32 = 200;
/// Longest time that an old secret stays valid beside the new one: a week, enough for whoever
/// rolls out by hand.
pub const MAX_OVERLAP_SECONDS: u32 = 7 * 24 * 3600;

/// Kind of a long-lived credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CredentialKind {
    /// Personal access token.
    Pat,
    /// Application: signs its tokens with its own key, whose public half is kept here.
    App,
    /// Client certificate, by its fingerprint or by its issuer.
    Mtls,
}

/// What a credential is to be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateCredential {
    #[serde(rename = "type")]
    pub kind: CredentialKind,
    /// What people call it.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// Permissions, all of them held by the caller; absent or `null`: all that the caller holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Vec<Permission>>,
    /// The same in the form that SDKs send: those of `control` and `engine` together. Not beside
    /// `permissions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_policy: Option<PermissionPolicy>,
    /// Boundaries. Those of the caller hold beside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub resources: Option<Value>,
    /// The `tunnels` of `resources` under their older name. Not beside `resources`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub tunnels_grants: Option<Value>,
    /// When it ends, RFC 3339; absent: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// The public key of an application: `PUBLIC KEY` in PEM (P-256, P-521 or Ed25519).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key_pem: Option<String>,
    /// The client certificate itself, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_pem: Option<String>,
    /// The authority whose client certificates are accepted, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_pem: Option<String>,
}

/// Permissions in two groups, as SDKs send them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionPolicy {
    /// Permissions of the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<PermissionGroup>,
    /// Permissions of the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<PermissionGroup>,
}

/// One group of a policy.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionGroup {
    pub mode: GroupMode,
    /// The chosen ones; only with `select`.
    #[serde(default)]
    pub permissions: Vec<Permission>,
}

/// How a group of permissions is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupMode {
    /// Those that are listed.
    Select,
    /// None.
    None,
}

/// How a credential is replaced: by one of the same type and reach, with another id. A personal
/// access token gets a new token; an application sends its new key, a client its new certificate.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateCredential {
    /// Seconds that the old one stays valid; 0 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 604_800)]
    pub overlap_seconds: Option<u32>,
    /// The new public key of an application.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false)]
    pub public_key_pem: Option<String>,
    /// The new client certificate.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false)]
    pub certificate_pem: Option<String>,
    /// The new authority of client certificates.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false)]
    pub issuer_pem: Option<String>,
}

/// Whether a credential is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CredentialStatus {
    /// It is.
    Active,
    /// It has ended.
    Expired,
}

/// A credential, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    #[schema(example = "crd_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    #[serde(rename = "type")]
    pub kind: CredentialKind,
    pub name: String,
    pub status: CredentialStatus,
    /// Public id of a personal access token, 8 hex digits: it stands in TURN usernames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub token_endpoint: Option<String>,
    /// The OAuth client that holds the token; absent where its owner issued it by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub oauth_client_id: Option<String>,
    /// SHA-256 of the certificate in hex, where one certificate is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub fingerprint: Option<String>,
    /// SHA-256 of the authority's certificate in hex, where all its certificates are accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub issuer_fingerprint: Option<String>,
    /// The public key of an application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub public_key_pem: Option<String>,
    /// Permissions; `null` is not narrowed.
    #[schema(required = true)]
    pub permissions: Option<Vec<Permission>>,
    /// Boundaries; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object)]
    pub resources: Option<Value>,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub expires_at: Option<String>,
    /// When it was last seen in use; kept to the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub last_used_at: Option<String>,
    /// The address that this use came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_used_ip: Option<String>,
    /// Its successor, once it was rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rotated_to: Option<String>,
    /// The credential that was shown when this one was issued, itself or by a token that was minted
    /// from it; absent: a person in a browser issued it, or approved it for a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub issued_by: Option<String>,
}

/// A page of credentials.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CredentialList {
    pub credentials: Vec<Credential>,
    #[serde(flatten)]
    pub paging: Paging,
}

/// A credential that was just made, with its secret where it has one: it is not shown again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct IssuedCredential {
    pub credential: Credential,
    /// The token of a personal access token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub token: Option<String>,
}
