//! Long-lived credentials (CP-16): personal access tokens, applications, client certificates.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::{
    Access, Body, Method, Operation, PAGE, Parameter, Schemas, SuccessResponse, add, not_null,
    page, page_size,
};

/// Lists the caller's credentials.
pub const LIST: &Operation = &Operation {
    query: &[
        Parameter::text("q", "Part of the name, case-insensitive."),
        Parameter::one_of(
            "type",
            "Only credentials of this type.",
            &["pat", "app", "mtls"],
        ),
        Parameter::one_of(
            "status",
            "Only credentials with this status. Revoked credentials are never listed.",
            &["active", "expired"],
        ),
        Parameter::one_of(
            "order",
            "Oldest first (asc, the default) or newest first.",
            &["asc", "desc"],
        ),
        PAGE,
        page_size("Credentials per page."),
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
    body: Some(Body::required("CreateCredential", || {
        json!({
            "type": "pat",
            "name": "laptop",
            "permissions": ["account.projects.read-only", "tunnels.resources.read-only"],
            "expiresAt": "2030-01-01T00:00:00Z",
        })
    })),
    refusals: &[409],
    ..Operation::new(
        "create_credential",
        Method::Post,
        "/api/credentials",
        "Issue a credential",
        Access::Permitted(
            Permission::AccountCredentialsReadWrite,
            &[rule(&["create"])],
        ),
        SuccessResponse::json(201, "IssuedCredential"),
    )
};

/// Replaces the token, the key or the certificate of a credential. Comments call all three the
/// secret of the credential.
pub const ROTATE: &Operation = &Operation {
    body: Some(Body::optional(
        "RotateCredential",
        || json!({"overlapSeconds": 3600}),
    )),
    refusals: &[409],
    ..Operation::new(
        "rotate_credential",
        Method::Post,
        "/api/credentials/{credential_id}/rotate",
        "Replace the token, the key or the certificate of a credential",
        Access::Permitted(
            Permission::AccountCredentialsReadWrite,
            &[rule(&["update"])],
        ),
        SuccessResponse::json(200, "IssuedCredential"),
    )
};

/// Revokes a credential and every token that was minted from it. Credentials that it issued remain
/// valid, unless the caller also asks to revoke them.
pub const REVOKE: &Operation = &Operation {
    query: &[Parameter::one_of(
        "issued",
        "With true, all credentials that were issued with this one, directly or \
            indirectly, are revoked too, even if this one was already revoked.",
        &["true", "false"],
    )],
    ..Operation::new(
        "revoke_credential",
        Method::Delete,
        "/api/credentials/{credential_id}",
        "Revoke a credential",
        Access::Permitted(
            Permission::AccountCredentialsReadWrite,
            &[rule(&["delete"])],
        ),
        SuccessResponse::NO_CONTENT,
    )
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[LIST, CREATE, GET, ROTATE, REVOKE];

/// The part of the permission that an operation uses.
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

/// Maximum number of active credentials per person. It is more than a person can keep track of, and
/// few enough that two pages of the maximum size list them all.
pub const MAX_CREDENTIALS: u32 = 200;
/// Maximum time that an old secret stays valid beside the new one: a week, which is enough for a
/// manual roll-out.
pub const MAX_OVERLAP_SECONDS: u32 = 7 * 24 * 3600;

/// Kind of a long-lived credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CredentialKind {
    /// Personal access token.
    Pat,
    /// Application: signs its tokens with its own key. The platform stores the public key.
    App,
    /// Client certificate, identified by its fingerprint or by its issuer.
    Mtls,
}

/// Properties of a new credential.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateCredential {
    #[serde(rename = "type")]
    pub kind: CredentialKind,
    /// Display name.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// Permissions, all of which the caller must have; absent or `null`: all permissions of the
    /// caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Vec<Permission>>,
    /// The permissions in the form that SDKs send: those of `control` and those of `engine`
    /// together. Cannot be combined with `permissions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_policy: Option<PermissionPolicy>,
    /// Boundaries. Those of the caller apply in addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub resources: Option<Value>,
    /// The older name for the `tunnels` of `resources`. Cannot be combined with `resources`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub tunnels_grants: Option<Value>,
    /// Expiry, RFC 3339; absent: the credential does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// The public key of an application: `PUBLIC KEY` in PEM (P-256, P-521 or Ed25519).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key_pem: Option<String>,
    /// The client certificate, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_pem: Option<String>,
    /// The certificate authority that issues the accepted client certificates, in PEM.
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
    /// The selected permissions; only with `select`.
    #[serde(default)]
    pub permissions: Vec<Permission>,
}

/// Selection mode of a group of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupMode {
    /// The listed permissions.
    Select,
    /// No permissions.
    None,
}

/// A rotation: the credential is replaced by one of the same type and permissions, with another id.
/// A personal access token gets a new token. For an application the request contains the new key,
/// for a client certificate the new certificate.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateCredential {
    /// Seconds that the old secret stays valid; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 604_800)]
    pub overlap_seconds: Option<u32>,
    /// The new public key of an application.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub public_key_pem: Option<String>,
    /// The new client certificate, in PEM.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub certificate_pem: Option<String>,
    /// The new certificate authority of client certificates, in PEM.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub issuer_pem: Option<String>,
}

/// Status of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CredentialStatus {
    /// The credential can be used.
    Active,
    /// The credential has expired.
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
    /// Public id of a personal access token, 8 hex digits. It is part of TURN usernames. It is not
    /// the token endpoint of OAuth; existing clients fix the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub token_endpoint: Option<String>,
    /// The OAuth client that uses the token; absent if its owner issued it directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub oauth_client_id: Option<String>,
    /// SHA-256 of the certificate in hex, if the credential accepts one certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub fingerprint: Option<String>,
    /// SHA-256 of the authority's certificate in hex, if the credential accepts all certificates of
    /// the authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub issuer_fingerprint: Option<String>,
    /// The public key of an application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub public_key_pem: Option<String>,
    /// Permissions; `null`: all permissions of the owner.
    #[schema(required = true)]
    pub permissions: Option<Vec<Permission>>,
    /// Boundaries; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object)]
    pub resources: Option<Value>,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub expires_at: Option<String>,
    /// Time of last use, with a precision of one minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub last_used_at: Option<String>,
    /// Client address of the last use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_used_ip: Option<String>,
    /// Id of the credential that replaced this one, once it was rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rotated_to: Option<String>,
    /// The credential that authorised the issue of this one, directly or through a token minted
    /// from it; absent if a person issued it in a browser or approved it for a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub issued_by: Option<String>,
}

page! {
    /// A page of credentials.
    pub struct CredentialList {
        pub credentials: Vec<Credential>,
        pub paging: Paging,
    }
}

/// A new credential, with its secret if it has one. The secret is shown only once.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct IssuedCredential {
    pub credential: Credential,
    /// The token of a personal access token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub token: Option<String>,
}
