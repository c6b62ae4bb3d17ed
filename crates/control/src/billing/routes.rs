//! Routes of billing: the API and the hosted page.

use std::sync::Arc;

use axum::Router;

use super::{pages, read};
use crate::app::App;

/// Subscriptions, and the pages that change them.
pub fn routes() -> Router<Arc<App>> {
    pages::routes().merge(read::routes())
}
