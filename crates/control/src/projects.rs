//! Of `projects`.

mod endpoint;
mod name;

use std::sync::Arc;

use axum::Router;

pub use self::endpoint::{BadEndpoint, ProjectEndpoint};
pub use self::name::{BadText, IdempotencyKey, ProjectName};
use crate::app::App;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
}
