//! Calls of tools as requests to the platform, with the token of the context.

use std::sync::Arc;

use ::mcp::{Backend, Carried};
use bytes::Bytes;
use http::{Extensions, Request, Response, StatusCode};
use serde_json::json;

use crate::{failure::Failure, platform::Platform};

/// The platform over the network.
#[derive(Debug)]
pub(super) struct Network(Arc<Platform>);

impl Network {
    pub(super) fn new(platform: Platform) -> Self {
        Self(Arc::new(platform))
    }
}

impl Backend for Network {
    fn has_credential(&self, _caller: &Extensions) -> bool {
        // Without a token the command does not start.
        true
    }

    fn carry(&self, request: Request<Bytes>, _caller: &Extensions) -> Carried {
        let platform = Arc::clone(&self.0);
        Box::pin(async move {
            platform.carry(request).await.unwrap_or_else(|error| {
                let detail = Failure::from(error).to_string();
                let problem = json!({"code": "platform_unreachable", "detail": detail});
                let mut response = Response::new(Bytes::from(problem.to_string()));
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                response
            })
        })
    }
}
