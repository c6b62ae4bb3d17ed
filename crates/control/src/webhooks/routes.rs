//! Routes of webhook endpoints and deliveries.

use std::sync::Arc;

use api::control::webhooks::{
    CREATE, DELETE, GET, GET_DELIVERY, LIST, LIST_DELIVERIES, RETRY_DELIVERY, ROTATE, UPDATE,
};
use axum::Router;

use super::{deliveries, manage, read};
use crate::app::App;
use crate::http_api::route::OperationRouter as _;

/// Endpoints and their deliveries.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(LIST, read::list)
        .serve(CREATE, manage::create)
        .serve(GET, read::get)
        .serve(UPDATE, manage::update)
        .serve(DELETE, manage::delete)
        .serve(ROTATE, manage::rotate)
        .serve(LIST_DELIVERIES, deliveries::list)
        .serve(GET_DELIVERY, deliveries::get)
        .serve(RETRY_DELIVERY, deliveries::retry)
}
