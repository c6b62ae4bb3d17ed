//! OAuth. The metadata documents are operations of the API document. The endpoints are not: they
//! accept forms and return errors as RFC 6749 defines them.

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

/// Metadata of the protected resource (RFC 9728), which is the whole origin.
pub const PROTECTED_RESOURCE: &Operation = &Operation::get(
    "get_protected_resource_metadata",
    "/.well-known/oauth-protected-resource",
    "Metadata of the protected resource",
    Access::Public,
    "ProtectedResourceMetadata",
);

/// The metadata of the MCP endpoint (RFC 9728 section 3.1). Its tokens are those of the origin.
pub const PROTECTED_RESOURCE_OF_MCP: &Operation = &Operation::get(
    "get_protected_resource_metadata_of_mcp",
    "/.well-known/oauth-protected-resource/api/mcp",
    "Metadata of the protected resource, for clients of the MCP endpoint",
    Access::Public,
    "ProtectedResourceMetadata",
);

/// The metadata of the MCP endpoint that requires a token.
pub const PROTECTED_RESOURCE_OF_MCP_SIGN_IN: &Operation = &Operation::get(
    "get_protected_resource_metadata_of_mcp_sign_in",
    "/.well-known/oauth-protected-resource/api/mcp/sign-in",
    "Metadata of the protected resource, for clients of the MCP endpoint that requires a token",
    Access::Public,
    "ProtectedResourceMetadata",
);

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[
    AUTHORIZATION_SERVER,
    PROTECTED_RESOURCE,
    PROTECTED_RESOURCE_OF_MCP,
    PROTECTED_RESOURCE_OF_MCP_SIGN_IN,
];

/// Path of the MCP endpoint.
pub const MCP: &str = "/api/mcp";
/// Path of the MCP endpoint that requires a token.
pub const MCP_SIGN_IN: &str = "/api/mcp/sign-in";
/// Path of the consent page, which also receives the user's decision.
pub const AUTHORIZE: &str = "/oauth/authorize";
/// Path of the device authorization endpoint.
pub const DEVICE_AUTHORIZATION: &str = "/oauth/device_authorization";
/// Path of the token endpoint.
pub const TOKEN: &str = "/oauth/token";
/// Path of the revocation endpoint.
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
    /// True if a client may use the address of its metadata document as its `client_id` (OAuth
    /// Client ID Metadata Document, section 5). Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub client_id_metadata_document_supported: Option<bool>,
    /// RFC 9728 section 4.
    pub protected_resources: Vec<String>,
}

/// Metadata of the protected resource (RFC 9728 section 2).
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProtectedResourceMetadata {
    /// The resource that the address of this document names: the whole origin, which is the audience
    /// of all tokens, or an endpoint of it.
    #[schema(example = "https://svc.example.com")]
    pub resource: String,
    pub authorization_servers: Vec<String>,
    pub jwks_uri: String,
    /// The permissions that a client requests by default. Permissions over tokens and credentials
    /// are requested only if the user wants them.
    pub scopes_supported: Vec<String>,
    pub bearer_methods_supported: Vec<String>,
    pub resource_name: String,
}

/// A token response (RFC 6749 section 5.1).
#[derive(Clone, Serialize, Deserialize)]
pub struct TokenResponse {
    pub access_token: String,
    /// Always `Bearer`.
    pub token_type: String,
    /// Seconds until the token expires.
    pub expires_in: u32,
    /// The granted scope, which can be smaller than the requested one.
    pub scope: String,
}

/// The output of `Debug` leaves the token out.
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
    /// Eight letters with a dash in the middle.
    pub user_code: String,
    pub verification_uri: String,
    /// The verification address with the code in it, to open as a link or show as a QR code.
    pub verification_uri_complete: String,
    /// Seconds until the codes expire.
    pub expires_in: u32,
    /// Seconds between two polls.
    pub interval: u32,
}

/// The output of `Debug` leaves the codes out.
impl std::fmt::Debug for DeviceAuthorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceAuthorization")
            .field("verification_uri", &self.verification_uri)
            .finish_non_exhaustive()
    }
}

/// An error response (RFC 6749 section 5.2).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OauthError {
    pub error: String,
    pub error_description: String,
}

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<AuthorizationServerMetadata>(schemas);
    add::<ProtectedResourceMetadata>(schemas);
}
