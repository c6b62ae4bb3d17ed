//! The part of a path that varies.

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use types::problem::Problem;

use crate::problem::{Answer, Refusal};

/// The one variable segment of a path, percent-decoded. One that is not UTF-8 names nothing that
/// there is.
#[derive(Debug)]
pub struct Segment(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        Path::<String>::from_request_parts(parts, state)
            .await
            .map(|Path(segment)| Self(segment))
            .map_err(|_| Problem::not_found().into())
    }
}
