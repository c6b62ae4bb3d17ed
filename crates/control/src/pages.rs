//! Pages for people: plain forms that work without scripts.

pub mod layout;
pub mod same_origin;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
}
