//! Long-lived credentials (CP-16): issue, list, rotate, revoke.

mod audit;
mod issue;
mod list;
mod material;
mod revoke;
mod rotate;
mod view;

use std::sync::Arc;

use api::control::credentials::{CREATE, LIST, REVOKE, ROTATE};
use axum::Router;

pub use self::issue::{Issued, issue_pat};
pub(crate) use self::issue::{issue_access_token, issue_admin_pat};
use crate::app::App;
use crate::route::Serve as _;

/// Credentials of the caller.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(LIST, list::list)
        .serve(CREATE, issue::create)
        .serve(ROTATE, rotate::rotate)
        .serve(REVOKE, revoke::revoke)
}
