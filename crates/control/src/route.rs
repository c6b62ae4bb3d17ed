//! Routes are made of the operations that the document describes.

use std::sync::Arc;

use api::control::{Method, Operation};
use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};

use crate::app::App;

/// Puts a handler where its operation says: `Router::new().serve(WHOAMI, whoami)`.
pub trait Serve {
    /// The router with one more operation.
    #[must_use]
    fn serve<T: 'static>(self, operation: &Operation, handler: impl Handler<T, Arc<App>>) -> Self;
}

impl Serve for Router<Arc<App>> {
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
