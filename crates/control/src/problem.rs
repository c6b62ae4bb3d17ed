//! Refusals of handlers: a problem that becomes a response.

use axum::response::{IntoResponse, Response};
use credentials::BadMint;
use types::filter::ParamError;
use types::problem::Problem;

/// Why a handler refuses. Boxed, so that the answers that go well stay small.
#[derive(Debug)]
pub struct Refusal(Box<Problem>);

/// What a handler or a service function answers.
pub type Answer<T> = Result<T, Refusal>;

impl Refusal {
    /// The problem as the caller sees it.
    pub fn problem(&self) -> &Problem {
        &self.0
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<ParamError> for Refusal {
    fn from(error: ParamError) -> Self {
        Problem::from(error).into()
    }
}

impl From<BadMint> for Refusal {
    fn from(error: BadMint) -> Self {
        match error {
            BadMint::Param(error) => error.into(),
            BadMint::Signing => {
                tracing::error!("a signing key did not sign");
                Problem::internal().into()
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        daemon::problem::response(&self.0, None)
    }
}
