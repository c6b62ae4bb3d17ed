//! The OAuth authorization server: codes with PKCE for registered clients, and the device grant.
//!
//! Clients are public and come from the configuration ([`Clients`]). A user approves on a page
//! (`authorize`, `device`). The approval is stored and can be redeemed once at `token`. The token
//! is a personal access token with the claims of RFC 9068, and a credential like any other. It is
//! valid while the record of its hash exists (OA-8), which [`Caller`](crate::caller::Caller) looks
//! up with each request. There are no refresh tokens (OA-7).
//!
//! Each endpoint is a file. `request` parses authorization requests. The limits of a client's token
//! are those of [`crate::delegation`].

mod authorize;
mod clients;
mod consent;
mod cors;
mod device;
mod device_authorization;
mod error;
mod form;
mod issue;
mod metadata;
mod request;
mod revoke;
mod scope;
mod source;
mod token;
mod user_code;

use std::net::IpAddr;
use std::sync::Arc;

use api::control::oauth::{
    AUTHORIZATION_SERVER, AUTHORIZE, DEVICE_AUTHORIZATION, PROTECTED_RESOURCE,
    PROTECTED_RESOURCE_OF_MCP, REVOKE, TOKEN,
};
use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::StatusCode;
use types::id::UserId;

pub(crate) use self::authorize::REUSE_IS_SEEN_FOR;
pub use self::clients::{Client, Clients, OauthSection};
pub(crate) use self::cors::for_any_origin;
pub(crate) use self::device_authorization::EXPIRY_IS_TOLD_FOR;
use self::error::Code;
use crate::app::App;
use crate::people::throttle::{Limits, Throttle};
use crate::route::Serve as _;

/// Throttles of the OAuth handlers. A process has one, as a part of [`App`].
#[derive(Debug)]
pub struct Oauth {
    /// Typed user codes, by user. All sessions of a user count together.
    guesses: Throttle<UserId>,
    /// Typed user codes, by network.
    guessers: Throttle<IpAddr>,
    /// Device authorization requests, by network.
    askers: Throttle<IpAddr>,
}

impl Default for Oauth {
    fn default() -> Self {
        Self {
            guesses: Throttle::new(Limits::ACCOUNT),
            guessers: Throttle::new(Limits::ADDRESS),
            askers: Throttle::new(DEVICE_LIMITS),
        }
    }
}

/// Each request of a device creates a row for some minutes, and anyone may send one. The limit must
/// allow an office behind one address to set up its machines.
const DEVICE_LIMITS: Limits = Limits {
    free: 30,
    first_wait: 1,
    longest_wait: 60,
    forgotten_after: 600,
};

/// True if the path is an endpoint that answers programs in OAuth's own format.
pub(crate) fn is_endpoint(path: &str) -> bool {
    [TOKEN, REVOKE, DEVICE_AUTHORIZATION].contains(&path)
}

/// The 429 response of an endpoint.
pub(crate) fn too_many_requests(path: &str, retry_after: u32) -> Response {
    let error = Code::TemporarilyUnavailable.because("too many requests from this address");
    let mut response = error.with_retry_after(retry_after).into_response();
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    if path != DEVICE_AUTHORIZATION {
        cors::allow_any_origin(&mut response);
    }
    response
}

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    let public = Router::new()
        .serve(AUTHORIZATION_SERVER, metadata::authorization_server)
        .serve(PROTECTED_RESOURCE, metadata::protected_resource)
        .serve(PROTECTED_RESOURCE_OF_MCP, metadata::protected_resource)
        .route(TOKEN, post(token::token))
        .route(REVOKE, post(revoke::revoke));
    let paths = [
        AUTHORIZATION_SERVER.path,
        PROTECTED_RESOURCE.path,
        PROTECTED_RESOURCE_OF_MCP.path,
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
