//! Routes of the user API.

use std::sync::Arc;

use api::control::people::{END_SESSION, GET_USER, LIST_SESSIONS};
use axum::Router;

use super::{session_list, user};
use crate::app::App;
use crate::http_api::route::OperationRouter as _;

/// The current user and its sessions.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(GET_USER, user::get)
        .serve(LIST_SESSIONS, session_list::list)
        .serve(END_SESSION, session_list::end)
}
