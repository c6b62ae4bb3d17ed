//! Tokens for forwarded requests.

use api::control::tokens::{MAX_TTL_SECONDS, MintToken};
use http::HeaderValue;
use serde_json::json;
use types::problem::Problem;

use super::access::LiveAccess;
use super::operation::ForwardedOperation;
use crate::credentials::tokens;
use crate::http_api::problem::HandlerResult;

/// The `Authorization` field of a request: a token of the user for this operation and this project
/// only. It is minted from the session and ends with it.
pub(super) fn authorization(
    access: &LiveAccess,
    operation: ForwardedOperation,
) -> HandlerResult<HeaderValue> {
    let seconds = if operation.is_event_stream {
        // A stream ends with its token.
        MAX_TTL_SECONDS
    } else {
        REQUEST_SECONDS
    };
    let requested = MintToken {
        permissions: Some(operation.token_permissions(&access.who)),
        resources: Some(json!({"tunnels": {"projects": [access.project]}})),
        ttl_seconds: Some(seconds),
    };
    let minted = tokens::delegate(&access.app, &access.who, requested)?;
    let field = HeaderValue::try_from(format!("Bearer {}", minted.token));
    let mut field = field.map_err(|_| Problem::internal())?;
    field.set_sensitive(true);
    Ok(field)
}

/// Lifetime of a token for a request that the engine answers immediately. It allows for a
/// difference between the clocks.
const REQUEST_SECONDS: u32 = 60;
