//! Project-wide policy (ED-8): what may stand in it.

mod check;

pub use self::check::check;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
}
