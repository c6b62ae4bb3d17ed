//! Routes from the operations of the API document.

use std::sync::Arc;

use api::control::{Method, Operation};
use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};

use crate::app::App;

/// Adds a handler at the path of its operation: `Router::new().serve(WHOAMI, whoami)`.
pub trait OperationRouter {
    /// Returns the router with one more operation.
    #[must_use]
    fn serve<T: 'static>(self, operation: &Operation, handler: impl Handler<T, Arc<App>>) -> Self;
}

impl OperationRouter for Router<Arc<App>> {
    fn serve<T: 'static>(self, operation: &Operation, handler: impl Handler<T, Arc<App>>) -> Self {
        let filter = match operation.method {
            Method::Get => MethodFilter::GET,
            Method::Head => MethodFilter::HEAD,
            Method::Post => MethodFilter::POST,
            Method::Put => MethodFilter::PUT,
            Method::Patch => MethodFilter::PATCH,
            Method::Delete => MethodFilter::DELETE,
        };
        self.route(operation.path, on(filter, handler))
    }
}
