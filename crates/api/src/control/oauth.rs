//! OAuth: the metadata documents, which are operations of the document, and the answers of the
//! endpoints, which are not: they take forms and refuse in the words of RFC 6749.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Access, Operation, Schemas, add};

/// Metadata of the authorization server (RFC 8414).
pub const AUTHORIZATION_SERVER: &Operation = &Operation::get(
    "get_authorization_server_metadata",
    "/.well-known/oauth-authorization-server",
    "Metadata of the authorization server",
    Access::Public,
    "AuthorizationServerMetadata",
);

/// Metadata of the protected resource (RFC 9728): the whole origin.
pub const PROTECTED_RESOURCE: &Operation = &Operation::get(
    "get_protected_resource_metadata",
    "/.well-known/oauth-protected-resource",
    "Metadata of the protected resource",
    Access::Public,
    "ProtectedResourceMetadata",
);

/// The same where a client of the MCP endpoint looks for it (RFC 9728 section 3.1).
pub const PROTECTED_RESOURCE_OF_MCP: &Operation = &Operation::get(
    "get_protected_resource_metadata_of_mcp",
    "/.well-known/oauth-protected-resource/api/mcp",
    "Metadata of the protected resource, for clients of the MCP endpoint",
    Access::Public,
    "ProtectedResourceMetadata",
);

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[
    AUTHORIZATION_SERVER,
    PROTECTED_RESOURCE,
    PROTECTED_RESOURCE_OF_MCP,
];

/// Where a person approves a client, and where the answer of the consent page goes.
pub const AUTHORIZE: &str = "/oauth/authorize";
/// Where a device asks to be let in.
pub const DEVICE_AUTHORIZATION: &str = "/oauth/device_authorization";
/// Where tokens are issued.
pub const TOKEN: &str = "/oauth/token";
/// Where tokens are revoked.
pub const REVOKE: &str = "/oauth/revoke";

/// Metadata of the authorization server (RFC 8414 section 2).
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuthorizationServerMetadata {
    #[schema(example = "https://svc.example.com")]
    pub issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub device_authorization_endpoint: String,
    pub revocation_endpoint: String,
    pub jwks_uri: String,
    /// Every permission.
    pub scopes_supported: Vec<String>,
    pub response_types_supported: Vec<String>,
    pub response_modes_supported: Vec<String>,
    pub grant_types_supported: Vec<String>,
    pub token_endpoint_auth_methods_supported: Vec<String>,
    pub revocation_endpoint_auth_methods_supported: Vec<String>,
    pub code_challenge_methods_supported: Vec<String>,
    /// RFC 9207 section 3.
    pub authorization_response_iss_parameter_supported: bool,
    /// RFC 9728 section 4.
    pub protected_resources: Vec<String>,
}

/// Metadata of the protected resource (RFC 9728 section 2).
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProtectedResourceMetadata {
    /// The whole origin: what tokens are for.
    #[schema(example = "https://svc.example.com")]
    pub resource: String,
    pub authorization_servers: Vec<String>,
    pub jwks_uri: String,
    /// The permissions that a client asks for by itself: those over tokens and credentials are
    /// asked for only when the person wants that.
    pub scopes_supported: Vec<String>,
    pub bearer_methods_supported: Vec<String>,
    pub resource_name: String,
}

/// A token that was issued (RFC 6749 section 5.1).
#[derive(Clone, Serialize, Deserialize)]
pub struct TokenResponse {
    pub access_token: String,
    /// Always `Bearer`.
    pub token_type: String,
    /// Seconds.
    pub expires_in: u32,
    /// What was granted, which can be less than what was asked for.
    pub scope: String,
}

/// A token does not print.
impl std::fmt::Debug for TokenResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenResponse")
            .field("expires_in", &self.expires_in)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// A device that waits for approval (RFC 8628 section 3.2).
#[derive(Clone, Serialize, Deserialize)]
pub struct DeviceAuthorization {
    pub device_code: String,
    /// Eight letters with a dash.
    pub user_code: String,
    pub verification_uri: String,
    /// The same with the code in it, to open or to show as a picture.
    pub verification_uri_complete: String,
    /// Seconds.
    pub expires_in: u32,
    /// Seconds between two polls.
    pub interval: u32,
}

/// Codes do not print.
impl std::fmt::Debug for DeviceAuthorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceAuthorization")
            .field("verification_uri", &self.verification_uri)
            .finish_non_exhaustive()
    }
}

/// A refusal (RFC 6749 section 5.2).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OauthError {
    pub error: String,
    pub error_description: String,
}

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<AuthorizationServerMetadata>(schemas);
    add::<ProtectedResourceMetadata>(schemas);
}
