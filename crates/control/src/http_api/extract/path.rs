//! Path parameters.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::de::DeserializeOwned;
use types::problem::Problem;

use crate::app::App;
use crate::http_api::problem::{HandlerResult, Refusal};

/// The parameters of a path, in order. A parameter that cannot be parsed gives 404.
#[derive(Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Path<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> HandlerResult<Self> {
        let path = axum::extract::Path::from_request_parts(parts, app).await;
        path.map(|axum::extract::Path(value)| Self(value))
            .map_err(|_| Problem::not_found().into())
    }
}
