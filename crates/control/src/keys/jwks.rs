//! The JWK set of the platform (RFC 7517).

use std::sync::Arc;

use api::control::contracts::JWKS_MEDIA_TYPE;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;

use crate::app::App;
use crate::http_api::contracts::cached;

/// Caches may keep it for five minutes. A key is published twelve times as long before it signs
/// ([`super::LEAD`]), so verifiers have the key before its first token.
pub(super) async fn serve(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    cached(JWKS_MEDIA_TYPE, app.keys.key_set().jwks(), &headers)
}
