//! The JWK set of the platform (RFC 7517).

use std::sync::Arc;

use api::control::contracts::JWKS_MEDIA_TYPE;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;

use crate::app::App;
use crate::contracts::cached;

/// Caches may keep it for five minutes, and a key is in it for twelve times as long before it
/// signs ([`super::LEAD`]): whoever verifies has a key before the first token of it.
pub(super) async fn serve(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    cached(JWKS_MEDIA_TYPE, app.keys.ring().jwks(), &headers)
}
