//! A single path parameter.

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use types::problem::Problem;

use crate::http_api::problem::{HandlerResult, Refusal};

/// The one parameter of a path, percent-decoded. If it is not UTF-8, it matches no resource.
#[derive(Debug)]
pub struct Segment(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> HandlerResult<Self> {
        Path::<String>::from_request_parts(parts, state)
            .await
            .map(|Path(segment)| Self(segment))
            .map_err(|_| Problem::not_found().into())
    }
}
