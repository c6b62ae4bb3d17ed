//! Workspaces: who belongs to them and what each member may do.

pub mod role;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
}
