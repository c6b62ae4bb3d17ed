//! Routes of the authorization server.

use std::sync::Arc;

use api::control::oauth::{
    AUTHORIZATION_SERVER, AUTHORIZE, DEVICE_AUTHORIZATION, PROTECTED_RESOURCE,
    PROTECTED_RESOURCE_OF_MCP, PROTECTED_RESOURCE_OF_MCP_SIGN_IN, REVOKE, TOKEN,
};
use axum::Router;
use axum::routing::{get, post};

use super::cors::for_any_origin;
use super::{authorize, device, device_authorization, metadata, revoke, token};
use crate::app::App;
use crate::http_api::route::OperationRouter as _;

/// Metadata, endpoints for programs, and pages for users.
pub fn routes() -> Router<Arc<App>> {
    let public = Router::new()
        .serve(AUTHORIZATION_SERVER, metadata::authorization_server)
        .serve(PROTECTED_RESOURCE, metadata::protected_resource)
        .serve(PROTECTED_RESOURCE_OF_MCP, metadata::mcp)
        .serve(PROTECTED_RESOURCE_OF_MCP_SIGN_IN, metadata::mcp_sign_in)
        .route(TOKEN, post(token::token))
        .route(REVOKE, post(revoke::revoke));
    let paths = [
        AUTHORIZATION_SERVER.path,
        PROTECTED_RESOURCE.path,
        PROTECTED_RESOURCE_OF_MCP.path,
        PROTECTED_RESOURCE_OF_MCP_SIGN_IN.path,
        TOKEN,
        REVOKE,
    ];
    let pages = Router::new()
        .route(AUTHORIZE, get(authorize::show).post(authorize::submit))
        .route(
            DEVICE_AUTHORIZATION,
            post(device_authorization::device_authorization),
        )
        .route("/device", get(device::show).post(device::submit))
        .route("/device/approve", post(device::decide));
    for_any_origin(public, &paths).merge(pages)
}
