//! Routes of the public keys.

use std::sync::Arc;

use api::control::contracts::{IDENTITY_KEYS, JWKS};
use api::control::turn::RELAY_KEY;
use axum::Router;

use super::{identity_keys, jwks, relay_key};
use crate::app::App;
use crate::http_api::route::OperationRouter as _;
use crate::oauth::for_any_origin;

/// Public keys for engines, relays and clients that verify tokens of the platform, and for services
/// that verify assertions of its engines.
pub fn routes() -> Router<Arc<App>> {
    for_any_origin(Router::new().serve(JWKS, jwks::serve), &[JWKS.path])
        .serve(RELAY_KEY, relay_key::serve)
        .serve(IDENTITY_KEYS, identity_keys::serve)
}
