//! `GET /.well-known/oauth-authorization-server` and `…/oauth-protected-resource` (OA-1).

use std::sync::Arc;

use api::control::contracts::JWKS;
use api::control::oauth::{
    AUTHORIZE, AuthorizationServerMetadata, DEVICE_AUTHORIZATION, MCP, MCP_SIGN_IN,
    ProtectedResourceMetadata, REVOKE, TOKEN,
};
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use types::permission::Permission;

use super::clients::{CODE_GRANT, DEVICE_GRANT};
use crate::app::App;
use crate::config::Config;
use crate::http_api::contracts::cached;
use crate::http_api::problem::HandlerResult;

/// The metadata of the authorization server (RFC 8414 section 3).
pub(super) async fn authorization_server(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let config = &app.config;
    let metadata = AuthorizationServerMetadata {
        issuer: config.base_url.clone(),
        authorization_endpoint: config.url(AUTHORIZE),
        token_endpoint: config.url(TOKEN),
        device_authorization_endpoint: config.url(DEVICE_AUTHORIZATION),
        revocation_endpoint: config.url(REVOKE),
        jwks_uri: config.url(JWKS.path),
        scopes_supported: permission_names(|_| true),
        response_types_supported: owned(&["code"]),
        response_modes_supported: owned(&["query"]),
        grant_types_supported: owned(&[CODE_GRANT, DEVICE_GRANT]),
        token_endpoint_auth_methods_supported: owned(&["none"]),
        revocation_endpoint_auth_methods_supported: owned(&["none"]),
        code_challenge_methods_supported: owned(&["S256"]),
        authorization_response_iss_parameter_supported: true,
        client_id_metadata_document_supported: config.oauth.accepts_documents().then_some(true),
        protected_resources: vec![config.base_url.clone()],
    };
    metadata_response(&metadata, &headers)
}

/// The metadata of the whole origin as a protected resource (RFC 9728 section 3).
pub(super) async fn protected_resource(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    resource_metadata(&app.config, "", &headers)
}

/// The metadata of the MCP endpoint, where some tools need no token.
pub(super) async fn mcp(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    resource_metadata(&app.config, MCP, &headers)
}

/// The metadata of the MCP endpoint that requires a token for every call.
pub(super) async fn mcp_sign_in(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    resource_metadata(&app.config, MCP_SIGN_IN, &headers)
}

/// The metadata of the resource at a path. A client compares this resource with the address that it
/// called (RFC 9728 section 3.3). The tokens for every path have the whole origin as their audience
/// (OA-6).
fn resource_metadata(config: &Config, path: &str, headers: &HeaderMap) -> HandlerResult<Response> {
    let metadata = ProtectedResourceMetadata {
        resource: config.url(path),
        authorization_servers: vec![config.base_url.clone()],
        jwks_uri: config.url(JWKS.path),
        // MCP clients request every scope in this list. Scopes that manage access are granted only
        // to clients that request them explicitly (CP-14).
        scopes_supported: permission_names(|permission| !manages_access(permission)),
        bearer_methods_supported: owned(&["header"]),
        resource_name: "svc".to_owned(),
    };
    metadata_response(&metadata, headers)
}

/// True if a permission allows changes to tokens and credentials (CP-14).
pub(super) fn manages_access(permission: Permission) -> bool {
    matches!(
        permission,
        Permission::AccountTokensCreate
            | Permission::AccountCredentialsReadOnly
            | Permission::AccountCredentialsReadWrite
    )
}

fn metadata_response(
    metadata: &impl serde::Serialize,
    headers: &HeaderMap,
) -> HandlerResult<Response> {
    let text = serde_json::to_string(metadata).map_err(|_| types::problem::Problem::internal())?;
    Ok(cached("application/json", &text.into(), headers))
}

fn permission_names(wanted: impl Fn(Permission) -> bool) -> Vec<String> {
    let all = Permission::ALL.iter().copied();
    all.filter(|permission| wanted(*permission))
        .map(|permission| permission.to_string())
        .collect()
}

fn owned(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}
