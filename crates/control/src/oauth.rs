//! The OAuth authorization server: codes with PKCE for registered clients, and the device grant.
//!
//! Clients are public and come from the configuration ([`Clients`]). If the configuration allows it,
//! other clients describe themselves in a document ([`ClientDocuments`]). A user approves on a page
//! (`authorize`, `device`). The approval is stored and can be redeemed once at `token`. The token
//! is a personal access token with the claims of RFC 9068, and a credential like any other. It is
//! valid while the record of its hash exists (OA-8), which [`Caller`](crate::caller::Caller) looks
//! up with each request. There are no refresh tokens (OA-7).
//!
//! Each endpoint is a file. `request` parses authorization requests. The limits of a client's token
//! are those of [`crate::credentials::delegation`].

mod authorize;
mod client_document;
mod client_documents;
mod clients;
mod consent;
mod cors;
mod device;
mod device_authorization;
mod document_url;
mod error;
mod form;
mod issue;
mod metadata;
mod request;
mod revoke;
mod routes;
mod scope;
mod source;
mod token;
mod user_code;

use std::net::IpAddr;

use api::control::oauth::{DEVICE_AUTHORIZATION, REVOKE, TOKEN};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use types::id::UserId;

pub(crate) use self::authorize::CODE_REUSE_WINDOW;
use self::client_documents::ClientDocuments;
pub use self::clients::{Client, Clients, OauthSection};
pub(crate) use self::cors::{McpPage, for_any_origin, is_preflight};
pub(crate) use self::device_authorization::EXPIRED_CODE_RETENTION;
use self::error::Code;
pub use self::routes::routes;
use crate::people::throttle::{Limits, Throttle};
use crate::webhooks::{SenderError, WebhooksConfig};

/// Throttles of the OAuth handlers of one process, and its documents of clients; a part of
/// [`crate::app::App`].
#[derive(Debug)]
pub struct Oauth {
    /// Metadata documents of clients.
    documents: ClientDocuments,
    /// Typed user codes, by user. All sessions of a user count together.
    codes_by_user: Throttle<UserId>,
    /// Typed user codes, by network.
    codes_by_network: Throttle<IpAddr>,
    /// Device authorization requests, by network.
    devices_by_network: Throttle<IpAddr>,
}

impl Oauth {
    /// # Errors
    /// The file of authorities cannot be used.
    pub(crate) fn open(config: &WebhooksConfig) -> Result<Self, SenderError> {
        Ok(Self {
            documents: ClientDocuments::open(config)?,
            codes_by_user: Throttle::new(Limits::ACCOUNT),
            codes_by_network: Throttle::new(Limits::ADDRESS),
            devices_by_network: Throttle::new(DEVICE_LIMITS),
        })
    }
}

/// Each request of a device creates a row for some minutes, and anyone may send one. The limit must
/// allow an office behind one address to set up its machines.
const DEVICE_LIMITS: Limits = Limits {
    free: 30,
    first_wait: 1,
    longest_wait: 60,
    reset_after: 600,
};

/// True if the path is an endpoint that answers programs in OAuth's own format.
pub(crate) fn is_endpoint(path: &str) -> bool {
    [TOKEN, REVOKE, DEVICE_AUTHORIZATION].contains(&path)
}

/// The 429 response of an endpoint.
pub(crate) fn too_many_requests(path: &str, retry_after: u32) -> Response {
    let error =
        Code::TemporarilyUnavailable.with_description("too many requests from this address");
    let mut response = error.with_retry_after(retry_after).into_response();
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    if path != DEVICE_AUTHORIZATION {
        cors::allow_any_origin(&mut response);
    }
    response
}
