//! The JWK sets (RFC 7517) of the keys that engines sign assertions with.
//!
//! They are separate from the platform's own keys, and each cluster has its own set, so that an
//! engine can neither sign a token of the platform nor an assertion for a tunnel of another cluster.

use std::sync::Arc;

use api::control::contracts::JWKS_MEDIA_TYPE;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use types::problem::Problem;

use crate::app::App;
use crate::http_api::contracts::cached;
use crate::http_api::extract::Path;
use crate::http_api::problem::{HandlerResult, Refusal};

/// `GET /keyrings/identity/{cluster}`.
pub(super) async fn serve(
    State(app): State<Arc<App>>,
    Path(cluster): Path<String>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let keys = app.engines.identity_keys(&cluster);
    let keys = keys.ok_or_else(|| Refusal::from(Problem::not_found()))?;
    Ok(cached(JWKS_MEDIA_TYPE, keys, &headers))
}
