//! Routes of the engine link. They are not part of the public interface.

use std::sync::Arc;

use api::link::{CHANGES, REPORTS, SIGN_IN};
use axum::Router;
use axum::routing::{get, post};

use super::caller::Engine;
use super::{changes, reports, sign_in};
use crate::app::App;

/// The stream of changes, reports, and sign-in for published tunnels.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        // With HEAD an engine checks that its secret and version are accepted. It opens no link.
        .route(CHANGES, get(changes::stream).head(|_: Engine| async {}))
        .route(REPORTS, post(reports::receive))
        .route(SIGN_IN, get(sign_in::show).post(sign_in::agree))
}
