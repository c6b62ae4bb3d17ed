//! Routes of custom domains.

use std::sync::Arc;

use api::control::domains::{
    CREATE, DELETE, DELETE_CERTIFICATE, DOMAIN_CONNECT, GET, LIST, PUT_CERTIFICATE, VERIFY,
};
use axum::Router;

use super::{certificate, manage, read};
use crate::app::App;
use crate::http_api::route::OperationRouter as _;

/// Domains of a project, and their checks.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(LIST, read::list)
        .serve(CREATE, manage::create)
        .serve(GET, read::get)
        .serve(DELETE, manage::delete)
        .serve(VERIFY, manage::verify)
        .serve(DOMAIN_CONNECT, read::domain_connect)
        .serve(PUT_CERTIFICATE, certificate::upload)
        .serve(DELETE_CERTIFICATE, certificate::remove)
}
