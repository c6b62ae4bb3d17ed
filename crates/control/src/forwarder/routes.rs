//! Route of forwarded requests.

use std::sync::Arc;

use axum::Router;
use axum::routing::any;

use super::request;
use crate::app::App;

/// The Engine API of a project, for the platform's pages.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/engine/{project_id}/{*path}", any(request::handle))
}
