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

/// RFC 8414 section 3.
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
        scopes_supported: names(|_| true),
        response_types_supported: words(&["code"]),
        response_modes_supported: words(&["query"]),
        grant_types_supported: words(&[CODE_GRANT, DEVICE_GRANT]),
        token_endpoint_auth_methods_supported: words(&["none"]),
        revocation_endpoint_auth_methods_supported: words(&["none"]),
        code_challenge_methods_supported: words(&["S256"]),
        authorization_response_iss_parameter_supported: true,
        client_id_metadata_document_supported: config.oauth.accepts_documents().then_some(true),
        protected_resources: vec![config.base_url.clone()],
    };
    document(&metadata, &headers)
}

/// RFC 9728 section 3: the whole origin.
pub(super) async fn protected_resource(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    resource(&app.config, "", &headers)
}

/// The MCP endpoint.
pub(super) async fn mcp(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    resource(&app.config, MCP, &headers)
}

/// The MCP endpoint that requires a token.
pub(super) async fn mcp_sign_in(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    resource(&app.config, MCP_SIGN_IN, &headers)
}

/// Clients compare the resource with the address that they called (RFC 9728 section 3.3). The
/// audience of the tokens is the origin for all of them (OA-6).
fn resource(config: &Config, path: &str, headers: &HeaderMap) -> HandlerResult<Response> {
    let metadata = ProtectedResourceMetadata {
        resource: config.url(path),
        authorization_servers: vec![config.base_url.clone()],
        jwks_uri: config.url(JWKS.path),
        // MCP clients request every scope in this list. CP-14 leaves the others to the user's
        // choice.
        scopes_supported: names(|permission| !manages_access(permission)),
        bearer_methods_supported: words(&["header"]),
        resource_name: "svc".to_owned(),
    };
    document(&metadata, headers)
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

fn document(metadata: &impl serde::Serialize, headers: &HeaderMap) -> HandlerResult<Response> {
    let text = serde_json::to_string(metadata).map_err(|_| types::problem::Problem::internal())?;
    Ok(cached("application/json", &text.into(), headers))
}

fn names(wanted: impl Fn(Permission) -> bool) -> Vec<String> {
    let all = Permission::ALL.iter().copied();
    all.filter(|permission| wanted(*permission))
        .map(|permission| permission.to_string())
        .collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
