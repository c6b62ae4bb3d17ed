//! The surfaces of the platform put together: the API and its pages, and the API as tools for AI
//! clients beside them.

use std::sync::Arc;

use axum::Router;
use control::app::{App, router, router_beside};
use control::caller;
use http::{Extensions, HeaderMap};
use mcp::{Hosted, Identified, Identify};

/// Everything that the platform serves.
pub(crate) fn routes(app: &Arc<App>) -> Router {
    let tools = mcp::hosted(Hosted {
        base_url: app.config.base_url.clone(),
        api: router(Arc::clone(app)),
        identify: Door(Arc::clone(app)),
    });
    router_beside(Arc::clone(app), tools)
}

/// Knows callers of tools as the API knows its own: by their bearer, and by nothing else (MC-5).
struct Door(Arc<App>);

impl Identify for Door {
    fn identify(&self, headers: HeaderMap) -> Identified {
        let app = Arc::clone(&self.0);
        Box::pin(async move {
            match caller::of_bearer(&app, &headers).await {
                Ok(caller) => Ok(caller.map(|who| {
                    let mut extensions = Extensions::new();
                    extensions.insert(who);
                    extensions
                })),
                // MC-7.
                Err(refusal) => Err(axum::response::IntoResponse::into_response(refusal)),
            }
        })
    }
}
