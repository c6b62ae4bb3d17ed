//! Routes of the user API.

use std::sync::Arc;

use api::control::people::GET_USER;
use axum::Router;

use super::user;
use crate::app::App;
use crate::http_api::route::Serve as _;

/// The current user.
pub fn routes() -> Router<Arc<App>> {
    Router::new().serve(GET_USER, user::get)
}
