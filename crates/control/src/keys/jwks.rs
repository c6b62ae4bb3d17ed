//! The JWK set of the platform (RFC 7517).

use std::sync::Arc;

use api::control::contracts::JWKS_MEDIA_TYPE;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use serde_json::{Value, json};

use crate::app::App;
use crate::contracts::cached;

pub(super) fn document(keys: &[Value]) -> String {
    json!({"keys": keys}).to_string()
}

/// Five minutes: a rotation puts the new key into the set that long before it signs, or whoever
/// meets an unknown `kid` asks again.
pub(super) async fn serve(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    cached(JWKS_MEDIA_TYPE, &app.keys.jwks, &headers).into_response()
}
