//! The public key of the relays of one realm.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::HeaderMap;
use types::problem::Problem;

use crate::app::App;
use crate::http_api::contracts::cached;
use crate::http_api::extract::Path;
use crate::http_api::problem::{HandlerResult, Refusal};

/// `GET /keyrings/turn/{realm}.spki.der.hex`.
pub(super) async fn serve(
    State(app): State<Arc<App>>,
    Path(keyring): Path<String>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let relay = keyring
        .strip_suffix(".spki.der.hex")
        .and_then(|realm| app.keys.turn_relay(realm));
    let relay = relay.ok_or_else(|| Refusal::from(Problem::not_found()))?;
    Ok(cached("text/plain; charset=utf-8", relay.public_hex(), &headers).into_response())
}
