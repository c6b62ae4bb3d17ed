//! Long-lived credentials (CP-16): they are issued, read, rotated and revoked. Short-lived tokens,
//! which are minted with them, are in [`tokens`].

mod changeable;
pub mod delegation;
pub(crate) mod expiry;
mod get;
mod issue;
mod list;
mod material;
mod revoke;
mod rotate;
pub mod tokens;
mod view;

use std::sync::Arc;

use api::control::credentials::{CREATE, GET, LIST, REVOKE, ROTATE};
use axum::Router;

pub use self::issue::{CredentialWithSecret, issue_access_token, issue_pat};
pub(crate) use self::issue::{issue_admin_pat, require_credential_quota};
use crate::app::App;
use crate::http_api::route::OperationRouter as _;

/// The routes for the credentials of the caller's user.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(LIST, list::list)
        .serve(CREATE, issue::create)
        .serve(GET, get::get)
        .serve(ROTATE, rotate::rotate)
        .serve(REVOKE, revoke::revoke)
}
