//! Long-lived credentials (CP-16): issue, read, rotate, revoke.

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

/// Credentials of the caller.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(LIST, list::list)
        .serve(CREATE, issue::create)
        .serve(GET, get::get)
        .serve(ROTATE, rotate::rotate)
        .serve(REVOKE, revoke::revoke)
}
