//! People: who they are, how they prove it, how long that lasts.

pub mod cookie;
pub mod email;
pub mod password;
pub mod recovery;
pub mod secret_link;
pub mod throttle;
pub mod totp;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
}
